// Weights on the (fake) device are bit for bit what the CPU backend keeps, and nothing stays behind when loading fails.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { loadDeviceWeights } from "../../src/backend/cuda/device-weights.ts";
import { DeviceStream } from "../../src/backend/cuda/stream.ts";
import { loadNative } from "../../src/backend/native.ts";
import {
  type NativeKernels,
  type SpanReader as NativeSpanReader,
  nativeKernels,
} from "../../src/backend/native-kernels.ts";
import { ggmlType } from "../../src/blocks/ggml-types.ts";
import { shapeSpec } from "../../src/convert/model-shape.ts";
import { synthesize } from "../../src/convert/synthesize.ts";
import type { GgufFile } from "../../src/gguf/gguf-file.ts";
import { openGguf } from "../../src/gguf/open-gguf.ts";
import { bindModel } from "../../src/model/weights.ts";
import { longestReadBytes, STAGING_BUFFERS, uploadBytes } from "../../src/plan/staging-size.ts";
import { planWeights } from "../../src/plan/weight-layout.ts";
import type { LoadOptions } from "../../src/residency/load-weights.ts";
import { planReads } from "../../src/residency/read-order.ts";
import { FakeDriver } from "../fixtures/fake-driver.ts";
import { tinyModel } from "../fixtures/tiny-model.ts";

const { addon, reason } = loadNative();
const folder = mkdtempSync(join(tmpdir(), "ds4-device-weights-"));
/** All types of the mixed recipe; and a file large enough to use every slot several times. */
const bundled = join(import.meta.dirname, "..", "..", "models", "nano-q2-q4.gguf");
const large = join(folder, "nano-f32.gguf");

beforeAll(async () => {
  await synthesize(large, { spec: shapeSpec("nano"), recipe: "f32", seed: 3 });
});
afterAll(() => rmSync(folder, { recursive: true }));

describe.skipIf(addon === null)(`weights on the device ${reason ?? ""}`, () => {
  const native = addon === null ? null! : nativeKernels(addon);

  function load(
    driver: FakeDriver,
    options: LoadOptions = {},
    file: GgufFile = tinyModel(),
    kernels: NativeKernels = native,
  ) {
    const workspace = new kernels.Workspace(1);
    const stream = new DeviceStream(driver);
    try {
      return loadDeviceWeights({ kernels, workspace, stream }, file, bindModel(file), options);
    } finally {
      stream.close();
      workspace.close();
    }
  }

  /** Loads the large file; the code of the error, if any. Nothing may stay on the device or pinned. */
  function failingLoad(driver: FakeDriver, options: LoadOptions = {}, kernels = native): string | undefined {
    const file = openGguf(large);
    try {
      return codeOf(() => load(driver, options, file, kernels));
    } finally {
      file.close();
    }
  }

  function largeFile() {
    const file = openGguf(large);
    const plan = planWeights(bindModel(file));
    file.close();
    return {
      plan,
      reads: planReads(plan, longestReadBytes(plan)),
      smallTensors: plan.vectors.length + plan.indexes.length,
    };
  }

  it.each([
    ["in memory", () => tinyModel()],
    ["in a file", () => openGguf(bundled)],
    ["in a file, read piece by piece", () => withoutDescriptors(openGguf(bundled))],
    ["in a large file", () => openGguf(large)],
    ["in a large file, read piece by piece", () => withoutDescriptors(openGguf(large))],
  ])("packs every slice of a model %s as the CPU does and copies it to its place", (_where, open) => {
    const driver = new FakeDriver();
    const file = open();
    const weights = load(driver, {}, file);
    const workspace = new native.Workspace(1);
    for (const { tensor, slices, rows, cols, bytes } of weights.plan.matrices) {
      const expected = new native.WeightArena(bytes);
      const packed = new native.WeightMatrix(expected, 0, ggmlType(tensor.type).id, slices, rows, cols);
      const source = file.readTensor(tensor);
      const sliceBytes = source.length / slices;
      for (let slice = 0; slice < slices; slice++) {
        const part = source.subarray(slice * sliceBytes, (slice + 1) * sliceBytes);
        packed.packRows(workspace, slice, 0, rows, part);
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
    file.close();
    expect(driver.leaks).toEqual([]);
  });

  it("takes the arena first, then pins what was planned", () => {
    const driver = new FakeDriver();
    const weights = load(driver);
    const allocations = driver.calls.filter(({ method }) => method === "alloc").map(({ bytes }) => bytes);
    expect(allocations[0]).toBe(weights.plan.arenaBytes);
    expect(allocations.length).toBe(2);
    expect(weights.bytes).toBe(allocations[0]! + allocations[1]!);
    const pinned = driver.calls.filter(({ method }) => method === "pin").map(({ bytes }) => bytes);
    expect(pinned).toEqual([uploadBytes(weights.plan)]);
  });

  it("copies neighbours together: few more copies than reads, each read waited for before the next but one", () => {
    const { plan, reads, smallTensors } = largeFile();
    expect(reads.length).toBeGreaterThan(2 * STAGING_BUFFERS);
    const driver = new FakeDriver();
    const file = openGguf(large);
    const last: string[] = [];
    load(driver, { onProgress: () => last.push(driver.calls.at(-1)!.method) }, file).close();
    file.close();
    const copied = driver.calls.filter(({ method }) => method === "copyToDevice").slice(smallTensors);
    expect(copied.length).toBeLessThan(1.5 * reads.length);
    expect(copied.reduce((sum, { bytes }) => sum + bytes!, 0)).toBe(plan.arenaBytes);
    expect(last).toEqual(reads.map((_, index) => (index === 0 ? "recordEvent" : "synchronizeEvent")));
  });

  it.each([
    ["no memory for the arena", "alloc", "CUDA_ERROR_OUT_OF_MEMORY", 0, "memory"],
    ["no memory for the vectors", "alloc", "CUDA_ERROR_OUT_OF_MEMORY", 1, "memory"],
    ["a vector cannot be copied", "copyToDevice", "CUDA_ERROR_ILLEGAL_ADDRESS", 3, "cuda"],
    ["copies do not end", "synchronizeEvent", "CUDA_ERROR_LAUNCH_FAILED", 7, "cuda"],
    ["the last copies do not end", "synchronize", "CUDA_ERROR_LAUNCH_FAILED", 1, "cuda"],
    ["an event cannot be made", "createEvent", "CUDA_ERROR_UNKNOWN", 1, "cuda"],
    ["pinning crashes", "pin", "CUDA_ERROR_ILLEGAL_ADDRESS", 0, "cuda"],
  ] as const)("%s: typed error, nothing stays", (_what, method, result, after, code) => {
    const driver = new FakeDriver();
    driver.failAt(method, result, after);
    expect(failingLoad(driver)).toBe(code);
    expect(driver.leaks).toEqual([]);
  });

  it.each([0, 1, 9, 20])("the copy of read %d fails: typed error, nothing stays", (read) => {
    const driver = new FakeDriver();
    driver.failAt("copyToDevice", "CUDA_ERROR_ILLEGAL_ADDRESS", largeFile().smallTensors + read);
    expect(failingLoad(driver)).toBe("cuda");
    expect(driver.leaks).toEqual([]);
  });

  it.each([0, 0.4, 1])("the disk fails after %d of the file: typed error, nothing stays", (share) => {
    const total = largeFile().reads.reduce((sum, { bytes }) => sum + bytes, 0);
    const failAtByte = Math.min(total - 1, Math.floor(share * total));
    const driver = new FakeDriver();
    expect(failingLoad(driver, { faults: { failAtByte } })).toBe("io");
    expect(driver.leaks).toEqual([]);
  });

  it("no host memory for the copies, or none to read with: typed error, nothing stays", () => {
    const refused = class {
      constructor() {
        throw new Error("the operating system refused it");
      }
    };
    for (const name of ["WeightArena", "SpanReader"]) {
      const driver = new FakeDriver();
      const kernels = { ...native, [name]: refused } as unknown as NativeKernels;
      expect(failingLoad(driver, {}, kernels), name).toBe("memory");
      expect(driver.leaks).toEqual([]);
    }
  });

  it("stops the reading threads before it unpins what they write into", () => {
    const driver = new FakeDriver();
    const steps: string[] = [];
    class SpanReader {
      readonly #reader: NativeSpanReader;
      constructor(...args: ConstructorParameters<NativeKernels["SpanReader"]>) {
        this.#reader = new native.SpanReader(...args);
      }
      next(): Uint8Array | null {
        return this.#reader.next();
      }
      close(): void {
        steps.push(...driver.calls.splice(0).map(({ method }) => method));
        this.#reader.close();
      }
    }
    const kernels = { ...native, SpanReader } as unknown as NativeKernels;
    expect(failingLoad(driver, { signal: abortedAfter(5) }, kernels)).toBe("cancelled");
    expect(steps).toContain("pin");
    expect(steps).not.toContain("unpin");
    const after = driver.calls.map(({ method }) => method);
    expect(after).toContain("unpin");
    expect(after.slice(0, after.indexOf("unpin"))).toContain("synchronize");
    expect(driver.leaks).toEqual([]);
  });

  it("loads without pinned memory where the system allows none", () => {
    const driver = new FakeDriver();
    driver.failAt("pin", "CUDA_ERROR_NOT_SUPPORTED");
    load(driver).close();
    expect(driver.leaks).toEqual([]);
  });

  it("stops when cancelled at any moment, and when the device is lost half-way", () => {
    for (const looks of [0, 1, 7, 20]) {
      const cancelled = new FakeDriver();
      expect(failingLoad(cancelled, { signal: abortedAfter(looks) })).toBe("cancelled");
      expect(cancelled.leaks).toEqual([]);
    }
    const lost = new FakeDriver();
    let reads = 0;
    const onProgress = () => {
      if (++reads === 5) lost.lose("CUDA_ERROR_DEVICE_UNAVAILABLE");
    };
    expect(failingLoad(lost, { onProgress })).toBe("cuda");
    expect(reads).toBe(5);
  });
});

/** A signal that is aborted from the look number `looks` on. */
function abortedAfter(looks: number): { readonly aborted: boolean } {
  let seen = 0;
  return {
    get aborted() {
      return seen++ >= looks;
    },
  };
}

function withoutDescriptors(file: GgufFile): GgufFile {
  return Object.defineProperty(file, "descriptors", { value: undefined });
}

function codeOf(run: () => unknown): string | undefined {
  try {
    run();
    return undefined;
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  }
}
