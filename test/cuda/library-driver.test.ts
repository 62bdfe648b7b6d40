// The calls into libcuda, against a stub that is compiled here: argument types, handles above 32 bits, error texts.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CudaError } from "../../src/backend/cuda/cuda-error.ts";
import type { CudaDriver } from "../../src/backend/cuda/driver.ts";
import { openCudaDriver } from "../../src/backend/cuda/load-driver.ts";
import { MemoryError } from "../../src/core/errors.ts";

const CUDA_INCLUDE = "/usr/local/cuda/include";
const compiler = process.env.CC ?? "cc";
const hasCompiler = spawnSync(compiler, ["--version"]).status === 0;

describe("without a driver", () => {
  it("says why, and does not throw", () => {
    const { driver, reason } = openCudaDriver("/nonexistent/libcuda.so.1");
    expect(driver).toBeNull();
    expect(reason).toMatch(/^\/nonexistent\/libcuda\.so\.1: .+/);
  });

  it("a library that is not libcuda is named with what is missing", () => {
    const { driver, reason } = openCudaDriver("libc.so.6");
    expect(driver).toBeNull();
    expect(reason).toMatch(/cuInit/);
  });
});

describe.runIf(hasCompiler && process.platform === "linux")("with a stub of libcuda", () => {
  const folder = mkdtempSync(join(tmpdir(), "ds4-libcuda-"));
  let driver: CudaDriver;

  beforeAll(() => {
    const library = join(folder, "libcuda-stub.so");
    const header = existsSync(join(CUDA_INCLUDE, "cuda.h")) ? ["-DWITH_CUDA_H", `-I${CUDA_INCLUDE}`] : [];
    const source = join(import.meta.dirname, "stub-libcuda.c");
    const built = spawnSync(compiler, ["-shared", "-fPIC", "-w", ...header, "-o", library, source], {
      encoding: "utf8",
    });
    expect(built.stderr).toBe("");
    const load = openCudaDriver(library);
    if (load.driver === null) throw new Error(load.reason);
    driver = load.driver;
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it("describes the device", () => {
    expect(driver.version).toBe(13000);
    expect(driver.deviceInfo(0)).toEqual({
      ...{ ordinal: 0, name: "Stub GPU", computeCapability: 826, multiprocessors: 16, integrated: true },
      ...{
        totalBytes: 150 * 2 ** 30,
        l2Bytes: 38,
        sharedBytesPerMultiprocessor: 81,
        sharedBytesPerBlock: 97,
      },
    });
    driver.retainContext(0);
    expect(driver.memoryInfo()).toEqual({ freeBytes: 100 * 2 ** 30, totalBytes: 150 * 2 ** 30 });
    driver.releaseContext(0);
  });

  it("copies both ways, also through pinned memory", () => {
    const stream = driver.createStream();
    const address = driver.alloc(64);
    driver.fillWords(address, 0x01020304, 8, stream);
    driver.fillBytes(address + 32, 7, 32, stream);
    const back = new Uint8Array(64);
    driver.copyToHost(back, address, 64, stream);
    expect([...back.subarray(0, 4), back[32], back[63]]).toEqual([4, 3, 2, 1, 7, 7]);
    const pinned = driver.allocHost(16);
    new Float32Array(pinned.view).set([1, 2, 3, 4]);
    driver.copyToDevice(address, pinned.address, 16, stream);
    driver.copyOnDevice(address + 16, address, 16, stream);
    const floats = new Float32Array(8);
    driver.copyToHost(floats, address, 32, stream);
    expect([...floats]).toEqual([1, 2, 3, 4, 1, 2, 3, 4]);
    expect(() => driver.copyToHost(new Float32Array(1), address, 8, stream)).toThrow(RangeError);
    driver.freeHost(pinned);
    driver.pin(address, 64);
    driver.unpin(address);
    driver.free(address);
    driver.destroyStream(stream);
  });

  it("launches with every kind of parameter", () => {
    const stream = driver.createStream();
    const module = driver.loadModule(new TextEncoder().encode("code"));
    const kernel = driver.moduleFunction(module, "known");
    expect(driver.functionInfo(kernel).registers).toBe(4);
    driver.allowSharedBytes(kernel, 65536);
    expect(driver.residentBlocks(kernel, 256, 4096)).toBe(4);
    const out = driver.alloc(64);
    const args = [
      ...[{ p: { address: out } }, { i32: -3 }, { u32: 4e9 }, { i64: -(2 ** 40) }, { f32: 1.5 }],
      { struct: Uint8Array.from({ length: 12 }, (_, i) => i) },
    ];
    const view = new DataView(new ArrayBuffer(64));
    driver.launch(kernel, [5, 6, 7], [32, 2, 1], 65536, stream, args, true);
    driver.copyToHost(view, out, 64, stream);
    const overlapping = new Uint8Array(view.buffer.slice(0));
    driver.launch(kernel, [5, 6, 7], [32, 2, 1], 65536, stream, args, false);
    driver.copyToHost(view, out, 64, stream);
    expect(overlapping).toEqual(new Uint8Array(view.buffer));
    expect([0, 4, 8, 12, 16, 20, 24].map((at) => view.getUint32(at, true))).toEqual([
      5, 6, 7, 32, 2, 1, 65536,
    ]);
    expect(view.getInt32(32, true)).toBe(-3);
    expect(view.getUint32(36, true)).toBe(4e9);
    expect(view.getBigInt64(40, true)).toBe(-(2n ** 40n));
    expect(view.getFloat32(48, true)).toBe(1.5);
    expect(view.getUint8(63)).toBe(11);
    driver.beginCapture(stream);
    const graph = driver.endCapture(stream);
    driver.launchGraph(graph, stream);
    driver.destroyGraph(graph);
    const event = driver.createEvent();
    driver.recordEvent(event, stream);
    driver.waitForEvent(stream, event);
    driver.synchronizeEvent(event);
    expect(driver.elapsedMs(event, event)).toBe(2.5);
    driver.destroyEvent(event);
    driver.unloadModule(module);
    driver.free(out);
  });

  it("turns results into typed errors with CUDA's names", () => {
    const failed = errorOf(() => driver.synchronize(1));
    expect(failed).toBeInstanceOf(CudaError);
    expect(failed).toMatchObject({ code: "cuda", result: "CUDA_ERROR_LAUNCH_FAILED", fatal: true });
    expect(String(failed)).toMatch(/cuStreamSynchronize.*unspecified launch failure.*restart/);
    const full = errorOf(() => driver.alloc(2 ** 30));
    expect(full).toBeInstanceOf(MemoryError);
    expect(full).toMatchObject({ code: "memory", neededBytes: 2 ** 30 });
    expect(errorOf(() => driver.loadModule(new Uint8Array(8)))).toMatchObject({ result: "CUDA_ERROR_209" });
  });
});

function errorOf(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  return undefined;
}
