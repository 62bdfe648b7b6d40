// The CUDA kernels' arithmetic without a GPU: some groups of cuda:check on the emulation, and what the emulation finds.
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { buildCudaEmulation, type CudaEmulation, whyNoEmulation } from "../../scripts/cuda-emulation.ts";
import { CudaError } from "../../src/backend/cuda/cuda-error.ts";
import type { DeviceBuffer } from "../../src/backend/cuda/device-memory.ts";
import { DeviceMemory } from "../../src/backend/cuda/device-memory.ts";
import type { KernelArg } from "../../src/backend/cuda/kernel-args.ts";
import { openCudaDriver } from "../../src/backend/cuda/load-driver.ts";
import { type OpenDevice, openDevice } from "../../src/backend/cuda/open-device.ts";
import { loadNative } from "../../src/backend/native.ts";
import { nativeKernels } from "../../src/backend/native-kernels.ts";
import { checks as decodeChecks } from "./decode.check.ts";
import { CheckBench } from "./kernel-check.ts";
import { checks as sequenceChecks } from "./sequence.check.ts";

const BUILD_TIMEOUT_MS = 600_000;
/** What stays under a minute together. */
const GROUPS = ["decode q4", "compressor"];
const reason = whyNoEmulation();
const { addon } = loadNative();

describe.skipIf(reason !== null)(`kernels on the processor${reason === null ? "" : `: ${reason}`}`, () => {
  let emulation: CudaEmulation;
  beforeAll(async () => {
    emulation = await buildCudaEmulation();
  }, BUILD_TIMEOUT_MS);

  const options = () => {
    const { driver, reason: missing } = openCudaDriver(emulation.libraryPath);
    if (driver === null) throw new Error(missing);
    return { driver, kernelImage: emulation.kernelImage };
  };

  it.runIf(addon !== null).each(GROUPS)("%s agrees with the CPU", async (name) => {
    const check = [...decodeChecks, ...sequenceChecks].find((each) => each.name === name);
    if (check === undefined) throw new Error(`there is no group "${name}"`);
    const device = openDevice(options());
    const kernels = nativeKernels(addon!);
    const workspace = new kernels.Workspace(2);
    const memory = new DeviceMemory(device.driver);
    const bench = new CheckBench(device, kernels, workspace, memory, options());
    const rows = await check.run(bench);
    bench.close();
    workspace.close();
    device.close();
    expect(rows.length).toBeGreaterThan(0);
    expect(rows.filter(({ error, bound }) => !(error <= bound))).toEqual([]);
  });

  describe("kernels that are wrong", () => {
    let device: OpenDevice;
    let memory: DeviceMemory;
    const upload = (values: Float32Array | Uint32Array): DeviceBuffer => {
      const buffer = memory.allocate("test", values.byteLength);
      device.stream.write(buffer, values);
      return buffer;
    };
    const zeros = (count: number) => upload(new Float32Array(count));
    const floats = (buffer: DeviceBuffer, count: number) => [
      ...device.stream.read(buffer, new Float32Array(count)),
    ];
    const ints = (buffer: DeviceBuffer, count: number) => [
      ...device.stream.read(buffer, new Int32Array(count)),
    ];
    const launch = (name: string, threads: number, args: readonly KernelArg[], blocks = 1, sharedBytes = 0) =>
      device.module.launch(device.stream, name, [blocks, 1, 1], [threads, 1, 1], sharedBytes, args);
    const failureOf = (run: () => void): CudaError => {
      try {
        run();
      } catch (error) {
        if (error instanceof CudaError) return error;
        throw error;
      }
      throw new Error("nothing failed");
    };

    // A failure takes the context down: each test has one of its own.
    beforeEach(() => {
      device = openDevice(options());
      memory = new DeviceMemory(device.driver);
    });
    afterEach(() => device.close());

    it("read NaN where shared memory was not written, in every block", () => {
      const out = zeros(40);
      launch("test_unwritten", 2, [{ p: out }], 20, 8);
      expect(floats(out, 40)).toEqual(Array.from({ length: 20 }, () => [3, Number.NaN]).flat());
    });

    it("are named where they load a vector from a wrong address", () => {
      const [out, from] = [zeros(1), upload(Float32Array.of(0, 0, 0, 0, 5, 0, 0, 0))];
      launch("test_vector_load", 1, [{ p: out }, { p: from }, { i32: 16 }]);
      expect(floats(out, 1)).toEqual([5]);
      const failure = failureOf(() => launch("test_vector_load", 1, [{ p: out }, { p: from }, { i32: 4 }]));
      expect(failure.result).toBe("CUDA_ERROR_MISALIGNED_ADDRESS");
      expect(failure.message).toMatch(
        /kernel test_vector_load, block \(0, 0, 0\), thread 0: .* self-test\.cu:\d+/,
      );
      expect(failureOf(() => device.stream.synchronize()).result).toBe("CUDA_ERROR_MISALIGNED_ADDRESS");
    });

    it("are named where their threads wait for each other", () => {
      const failure = failureOf(() => launch("test_deadlock", 64, [{ p: zeros(64) }]));
      expect(failure.result).toBe("CUDA_ERROR_LAUNCH_TIMEOUT");
      expect(failure.message).toMatch(
        /test_deadlock.*deadlock: 31 threads wait at __shfl_sync, 33 threads wait at __syncthreads/,
      );
    });

    it("are named where lanes meet at different instructions", () => {
      const failure = failureOf(() => launch("test_mixed_instructions", 32, [{ p: zeros(32) }]));
      expect(failure.message).toMatch(/test_mixed_instructions.*__syncwarp and __shfl_xor_sync/);
    });

    it("meet across a grid that the device holds, and are named where it does not", () => {
      const out = zeros(8);
      launch("test_grid_meeting", 256, [{ p: out }, { p: zeros(1) }], 8);
      expect(ints(out, 8)).toEqual(Array(8).fill(9));
      const args = [{ p: zeros(9) }, { p: zeros(1) }];
      const failure = failureOf(() => launch("test_grid_meeting", 256, args, 9));
      expect(failure.message).toMatch(/test_grid_meeting: deadlock: 8 of 9 blocks wait/);
    });

    it("are found where they write behind an allocation", () => {
      const out = zeros(3);
      launch("test_write_behind", 1, [{ p: out }, { i32: 3 }]);
      expect(failureOf(() => device.stream.synchronize()).message).toMatch(
        /behind an allocation of 12 bytes/,
      );
    });

    it("are found where they write far behind an allocation", () => {
      const failure = failureOf(() => launch("test_write_behind", 1, [{ p: zeros(3) }, { i32: 64 }]));
      expect(failure.result).toBe("CUDA_ERROR_ILLEGAL_ADDRESS");
      expect(failure.message).toMatch(/kernel test_write_behind, .*illegal address 0x/);
    });

    it("are named where an index is beyond its array", () => {
      const failure = failureOf(() => launch("test_index", 8, [{ p: zeros(1) }, { i32: 8 }]));
      expect(failure.message).toMatch(/index 8 beyond its array at self-test\.cu/);
    });

    it("read NaN before an asynchronous copy has come", () => {
      const out = zeros(2);
      launch("test_early_read", 1, [{ p: out }, { p: upload(Float32Array.of(7, 0, 0, 0)) }]);
      expect(floats(out, 2)).toEqual([Number.NaN, 7]);
    });

    it("are refused with more shared memory or threads than a device has", () => {
      const out = { p: zeros(64) };
      expect(() => launch("test_unwritten", 2, [out], 1, 300_000)).toThrow(/CUDA_ERROR_INVALID_VALUE/);
      expect(() => launch("test_unwritten", 1025, [out])).toThrow(/1025 threads in a block/);
    });
  });
});
