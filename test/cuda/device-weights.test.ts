// Weights on the (fake) device are bit for bit what the CPU backend keeps, and nothing stays behind when loading fails.
import { describe, expect, it } from "vitest";
import { loadDeviceWeights } from "../../src/backend/cuda/device-weights.ts";
import { DeviceStream } from "../../src/backend/cuda/stream.ts";
import { loadNative } from "../../src/backend/native.ts";
import { nativeKernels } from "../../src/backend/native-kernels.ts";
import { ggmlType } from "../../src/blocks/ggml-types.ts";
import { bindModel } from "../../src/model/weights.ts";
import { FakeDriver } from "../fixtures/fake-driver.ts";
import { tinyModel } from "../fixtures/tiny-model.ts";

const { addon, reason } = loadNative();

describe.skipIf(addon === null)(`weights on the device ${reason ?? ""}`, () => {
  const kernels = addon === null ? null! : nativeKernels(addon);

  function load(driver: FakeDriver, options: Parameters<typeof loadDeviceWeights>[3] = {}) {
    const file = tinyModel();
    const workspace = new kernels.Workspace(1);
    const stream = new DeviceStream(driver);
    try {
      const model = bindModel(file);
      return {
        file,
        model,
        weights: loadDeviceWeights({ kernels, workspace, stream }, file, model, options),
      };
    } finally {
      stream.close();
      workspace.close();
    }
  }

  it("packs every slice as the CPU does and copies it to its place", () => {
    const driver = new FakeDriver();
    const { file, weights } = load(driver);
    const workspace = new kernels.Workspace(1);
    for (const { tensor, slices, rows, cols, bytes } of weights.plan.matrices) {
      const expected = new kernels.WeightArena(bytes);
      const packed = new kernels.WeightMatrix(expected, 0, ggmlType(tensor.type).id, slices, rows, cols);
      const source = file.readTensor(tensor);
      const sliceBytes = source.length / slices;
      for (let slice = 0; slice < slices; slice++) {
        packed.packRows(
          workspace,
          slice,
          0,
          rows,
          source.subarray(slice * sliceBytes, (slice + 1) * sliceBytes),
        );
      }
      const found = driver.memoryAt(weights.matrix(tensor).buffer.address, bytes);
      const copy = new FakeDriver();
      const address = copy.alloc(bytes);
      copy.copyToDevice(address, expected.address, bytes, copy.createStream());
      expect(Buffer.compare(found, copy.memoryAt(address, bytes)), tensor.name).toBe(0);
      expected.close();
    }
    workspace.close();
    weights.close();
    expect(driver.leaks).toEqual([]);
  });

  it("takes the arena first", () => {
    const driver = new FakeDriver();
    const { weights } = load(driver);
    const allocations = driver.calls.filter(({ method }) => method === "alloc").map(({ bytes }) => bytes);
    expect(allocations[0]).toBe(weights.plan.arenaBytes);
    expect(allocations.length).toBe(2);
    expect(weights.bytes).toBe(allocations[0]! + allocations[1]!);
  });

  it.each([
    ["no memory for the arena", "alloc", "CUDA_ERROR_OUT_OF_MEMORY", 0, "memory"],
    ["no memory for the vectors", "alloc", "CUDA_ERROR_OUT_OF_MEMORY", 1, "memory"],
    ["a copy fails", "copyToDevice", "CUDA_ERROR_ILLEGAL_ADDRESS", 30, "cuda"],
    ["an event cannot be made", "createEvent", "CUDA_ERROR_UNKNOWN", 1, "cuda"],
  ] as const)("%s: typed error, nothing stays", (_what, method, result, after, code) => {
    const driver = new FakeDriver();
    driver.failAt(method, result, after);
    expect(codeOf(() => load(driver))).toBe(code);
    expect(driver.leaks).toEqual([]);
  });

  it("loads without pinned memory where the system allows none", () => {
    const driver = new FakeDriver();
    driver.failAt("pin", "CUDA_ERROR_NOT_SUPPORTED");
    load(driver).weights.close();
    expect(driver.leaks).toEqual([]);
  });

  it("stops when cancelled, and when the device is lost half-way", () => {
    const cancelled = new FakeDriver();
    expect(codeOf(() => load(cancelled, { signal: { aborted: true } }))).toBe("cancelled");
    expect(cancelled.leaks).toEqual([]);
    const lost = new FakeDriver();
    let pieces = 0;
    const onProgress = () => {
      if (++pieces === 5) lost.lose("CUDA_ERROR_DEVICE_UNAVAILABLE");
    };
    expect(codeOf(() => load(lost, { onProgress }))).toBe("cuda");
  });
});

function codeOf(run: () => unknown): string | undefined {
  try {
    run();
    return undefined;
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  }
}
