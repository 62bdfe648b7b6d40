// What the CUDA backend does around the kernels: orderly allocation and end, failures of the device, damaged models.
import { describe, expect, it } from "vitest";
import { createCudaBackend } from "../../src/backend/cuda/cuda-backend.ts";
import { CudaError } from "../../src/backend/cuda/cuda-error.ts";
import type { CudaSteps } from "../../src/backend/cuda/steps.ts";
import { resultBytes } from "../../src/backend/cuda/top-logits-steps.ts";
import { loadNative } from "../../src/backend/native.ts";
import { nativeKernels } from "../../src/backend/native-kernels.ts";
import { cudaResultBytes } from "../../src/plan/scratch-size.ts";
import { emulatedSteps } from "../fixtures/emulated-cuda-steps.ts";
import { FAKE_IMAGE, FakeDriver } from "../fixtures/fake-driver.ts";
import { tinyModel } from "../fixtures/tiny-model.ts";

const { addon, reason } = loadNative();

describe.skipIf(addon === null)(`cuda backend on a fake device ${reason ?? ""}`, () => {
  function open(driver: FakeDriver, change: (steps: CudaSteps) => CudaSteps = (steps) => steps) {
    const kernels = nativeKernels(addon!);
    const steps = change(emulatedSteps(driver, kernels, new kernels.Workspace(1)));
    return createCudaBackend(tinyModel(), addon!, {
      driver,
      steps,
      kernelImage: FAKE_IMAGE,
      maxBatchTokens: 32,
    });
  }
  const tokens = Int32Array.of(1, 2, 3);

  it("gives everything back, also with states still open", () => {
    const driver = new FakeDriver();
    const backend = open(driver);
    const kv = backend.createKv(64);
    backend.createKv(32);
    backend.forward([{ kv, tokens, logits: "last" }]);
    backend.close();
    backend.close();
    expect(driver.leaks).toEqual([]);
  });

  it("allocates nothing during a forward call", () => {
    const driver = new FakeDriver();
    const backend = open(driver);
    const kv = backend.createKv(64);
    const allocations = () => driver.calls.filter(({ method }) => /^alloc|^free/.test(method)).length;
    const before = allocations();
    backend.forward([{ kv, tokens, logits: "all" }]);
    backend.forward([{ kv, tokens, logits: "none" }]);
    expect(allocations()).toBe(before);
    backend.close();
  });

  it("measures the device's memory where its activations are larger than the caches", () => {
    const [driver, cached] = [{ l2Bytes: 256 }, { l2Bytes: 2 ** 30 }].map(
      (d) => new FakeDriver({ device: d }),
    );
    const backend = open(driver);
    const kv = backend.createKv(64);
    const before = driver.leaks.length;
    const copied = () => driver.calls.filter(({ method }) => method === "copyOnDevice");
    const earlier = copied().length;
    const rate = backend.deviceCopyRate!();
    const copies = copied().slice(earlier);
    expect(driver.leaks).toHaveLength(before);
    // The fake says that what lies between two events took a millisecond: eight copies, read and written.
    expect(copies).toHaveLength(48);
    const { headCount, headDim } = backend.spec;
    expect(rate).toBe(8 * 2 * (4 * 32 * headCount * headDim) * 1000);
    expect(backend.forward([{ kv, tokens, logits: "last" }]).logits[0].every(Number.isFinite)).toBe(true);
    backend.close();
    expect(() => backend.deviceCopyRate!()).toThrow(expect.objectContaining({ code: "session" }));
    const small = open(cached);
    expect(small.deviceCopyRate!()).toBe(0);
    small.close();
  });

  it("counts what it holds", () => {
    const driver = new FakeDriver();
    const backend = open(driver);
    const kv = backend.createKv(64);
    for (const logits of ["none", "last", "top"] as const) {
      backend.forward([{ kv, tokens, logits }]);
      const { weightBytes, kvBytes, scratchBytes } = backend.stats();
      const { freeBytes, totalBytes } = driver.memoryInfo();
      expect(weightBytes + kvBytes + scratchBytes).toBe(totalBytes - freeBytes + driver.pinnedBytes);
      expect(kvBytes).toBe(kv.bytes);
    }
    expect(driver.pinnedBytes).toBe(cudaResultBytes(backend.spec, 1));
    backend.close();
  });

  // Every allocation, copy and handle of an open backend fails once: each time the error is typed and nothing stays.
  it.each([
    ["alloc", "CUDA_ERROR_OUT_OF_MEMORY", "memory"],
    ["createStream", "CUDA_ERROR_UNKNOWN", "cuda"],
    ["loadModule", "CUDA_ERROR_NO_BINARY_FOR_GPU", "cuda"],
    ["synchronize", "CUDA_ERROR_LAUNCH_FAILED", "cuda"],
    ["copyToDevice", "CUDA_ERROR_ILLEGAL_ADDRESS", "cuda"],
    ["createEvent", "CUDA_ERROR_UNKNOWN", "cuda"],
  ] as const)("a failing %s while opening leaves nothing", (method, result, code) => {
    let failures = 0;
    for (let after = 0; ; after++) {
      const driver = new FakeDriver();
      driver.failAt(method, result, after);
      try {
        open(driver).close();
        break;
      } catch (error) {
        failures++;
        expect((error as { code: string }).code).toBe(code);
        expect(driver.leaks, `${method} ${after}`).toEqual([]);
      }
    }
    expect(failures).toBeGreaterThan(0);
  });

  it("a state that does not fit is a memory error, and the backend goes on", () => {
    const driver = new FakeDriver();
    const backend = open(driver);
    const kv = backend.createKv(32);
    for (const after of [0, 1]) {
      driver.failAt("alloc", "CUDA_ERROR_OUT_OF_MEMORY", after);
      expect(() => backend.createKv(64)).toThrow(expect.objectContaining({ code: "memory" }));
    }
    const { logits } = backend.forward([{ kv, tokens, logits: "last" }]);
    expect(logits[0].every(Number.isFinite)).toBe(true);
    backend.close();
    expect(driver.leaks).toEqual([]);
  });

  it("a failed launch leaves the state as it was; a lost device is remembered", () => {
    const driver = new FakeDriver();
    let fails = false;
    const backend = open(driver, (steps) => ({
      ...steps,
      attend: (...args) => {
        if (fails) throw new CudaError("cuLaunchKernel", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "");
        return steps.attend(...args);
      },
    }));
    const kv = backend.createKv(64);
    const expected = backend.forward([{ kv, tokens, logits: "last" }]).logits[0].slice();
    kv.reset();
    fails = true;
    expect(() => backend.forward([{ kv, tokens, logits: "last" }])).toThrow(CudaError);
    expect(kv.lengthTokens).toBe(0);
    fails = false;
    expect(backend.forward([{ kv, tokens, logits: "last" }]).logits[0]).toEqual(expected);

    driver.failAt("synchronize", "CUDA_ERROR_ILLEGAL_ADDRESS");
    const forward = () => backend.forward([{ kv, tokens, logits: "last" }]);
    expect(forward).toThrow(/CUDA_ERROR_ILLEGAL_ADDRESS.*restart/);
    const calls = driver.calls.length;
    expect(forward).toThrow(/CUDA_ERROR_ILLEGAL_ADDRESS/);
    expect(driver.calls.length).toBe(calls);
    expect(() => backend.createKv(16)).toThrow(CudaError);
    driver.lose("CUDA_ERROR_ILLEGAL_ADDRESS");
    backend.close();
  });

  it("decode steps are recorded the second time and replayed with the same results", () => {
    const graphs = (driver: FakeDriver) =>
      driver.calls.filter(({ method }) => method === "launchGraph").length;
    const decode = (backend: ReturnType<typeof open>, watched: boolean) => {
      const states = [backend.createKv(64), backend.createKv(48)];
      for (const kv of states) backend.forward([{ kv, tokens, logits: "none" }]);
      return Array.from({ length: 20 }, (_, step) => {
        const ranges = states.map((kv, i) => {
          return { kv, tokens: Int32Array.of(step + i), logits: "last" } as const;
        });
        // A step that is watched runs kernel by kernel.
        const options = watched ? { trace: () => {} } : {};
        return backend.forward(ranges, options).logits.map((logits) => logits.slice());
      });
    };
    const driver = new FakeDriver();
    const backend = open(driver);
    const replayed = decode(backend, false);
    expect(graphs(driver)).toBe(19);
    const other = new FakeDriver();
    const direct = open(other);
    expect(replayed).toEqual(decode(direct, true));
    expect(graphs(other)).toBe(0);
    backend.close();
    direct.close();
    expect(driver.leaks).toEqual([]);
  });

  it("a new or closed state forgets recorded steps; a driver that refuses to record is used without", () => {
    const driver = new FakeDriver();
    const backend = open(driver);
    const kv = backend.createKv(64);
    const step = () => backend.forward([{ kv, tokens: Int32Array.of(1), logits: "last" }]);
    for (let i = 0; i < 3; i++) step();
    const count = (method: string) => driver.calls.filter((call) => call.method === method).length;
    expect(count("endCapture")).toBe(1);
    backend.createKv(256).close();
    expect(count("destroyGraph")).toBe(1);
    for (let i = 0; i < 3; i++) step();
    expect(count("endCapture")).toBe(2);

    backend.createKv(16);
    driver.failAt("endCapture", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED");
    const replays = count("launchGraph");
    for (let i = 0; i < 4; i++) expect(step().logits[0].every(Number.isFinite)).toBe(true);
    expect(count("launchGraph")).toBe(replays);
    expect(kv.lengthTokens).toBe(10);
    backend.close();
    expect(driver.leaks).toEqual([]);
  });

  it("a decode step waits once; a row of its candidates is copied when it is asked for, once", () => {
    const driver = new FakeDriver();
    const backend = open(driver);
    const kv = backend.createKv(64);
    const copied = () => driver.calls.flatMap(({ method, bytes }) => (method === "copyToHost" ? bytes : []));
    const waits = () => driver.calls.filter(({ method }) => method === "synchronize").length;
    for (let step = 0; step < 4; step++) {
      const [before, waited] = [copied().length, waits()];
      const [top] = backend.forward([{ kv, tokens: Int32Array.of(step), logits: "top" }]).top;
      expect(copied().slice(before)).toEqual([resultBytes(1)]);
      expect(waits() - waited).toBe(1);
      const row = top!.row();
      expect(top!.row()).toBe(row);
      expect(copied().slice(before)).toEqual([resultBytes(1), 4 * backend.spec.vocabSize]);
      expect(row[top!.ids[0]]).toBe(top!.logits[0]);
    }
    const before = waits();
    backend.forward([{ kv, tokens: Int32Array.of(1), logits: "last" }]);
    expect(waits() - before).toBe(1);
    expect(driver.calls.filter(({ method }) => method === "launchGraph").length).toBe(3);
    const [top] = backend.forward([{ kv, tokens: Int32Array.of(1), logits: "top" }]).top;
    driver.failAt("copyToHost", "CUDA_ERROR_ILLEGAL_ADDRESS");
    expect(() => top!.row()).toThrow(/CUDA_ERROR_ILLEGAL_ADDRESS/);
    expect(() => backend.createKv(16)).toThrow(CudaError);
    backend.close();
    expect(driver.leaks).toEqual([]);
  });

  it("candidates that hold a number that is none are refused, and the state stays", () => {
    const driver = new FakeDriver();
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const backend = open(driver, (steps) => ({
        ...steps,
        topLogits: (...args) => {
          const [, , vocab, logits] = args;
          driver.enqueue(() => {
            const bytes = driver.memoryAt(logits.address + 4 * (vocab - 1), 4);
            new DataView(bytes.buffer, bytes.byteOffset).setFloat32(0, bad, true);
          });
          steps.topLogits(...args);
        },
      }));
      const kv = backend.createKv(64);
      const forward = () => backend.forward([{ kv, tokens, logits: "top" }]);
      expect(forward).toThrow(expect.objectContaining({ code: "unsupported-model" }));
      expect(kv.lengthTokens).toBe(0);
      backend.close();
    }
  });

  it("more rows than the device chooses from are chosen from on the host, alike", () => {
    const driver = new FakeDriver();
    const kernels = nativeKernels(addon!);
    const steps = emulatedSteps(driver, kernels, new kernels.Workspace(1));
    const options = { driver, steps, kernelImage: FAKE_IMAGE, maxBatchTokens: 80 };
    const backend = createCudaBackend(tinyModel(), addon!, options);
    const states = Array.from({ length: 70 }, () => backend.createKv(16));
    const run = (some: typeof states) => {
      const ranges = some.map((kv, i) => ({ kv, tokens: Int32Array.of(i % 9), logits: "top" }) as const);
      return backend.forward(ranges).top.map((top) => [...top!.ids, ...top!.row()]);
    };
    const all = run(states);
    for (const kv of states) kv.reset();
    expect(all.slice(0, 20)).toEqual(run(states.slice(0, 20)));
    expect(all[69]).toEqual(all[60]);
    backend.close();
  });

  it("memory that cannot be pinned is used as it is", () => {
    const driver = new FakeDriver();
    driver.failAt("pin", "CUDA_ERROR_OPERATING_SYSTEM", 1);
    driver.failAt("pin", "CUDA_ERROR_OPERATING_SYSTEM", 1);
    const backend = open(driver);
    const kv = backend.createKv(64);
    const [top] = backend.forward([{ kv, tokens, logits: "top" }]).top;
    expect(top!.row()[top!.ids[0]]).toBe(top!.logits[0]);
    backend.close();
    expect(driver.leaks).toEqual([]);
  });

  it("router scores that are not finite name the layer", () => {
    const driver = new FakeDriver();
    const backend = open(driver, (steps) => ({
      ...steps,
      route: (...args) => {
        const [, tokenCount, , logits, , , , , mark] = args;
        if (mark === 2) driver.memoryAt(logits.address, 4 * tokenCount).fill(0xff);
        steps.route(...args);
      },
    }));
    const kv = backend.createKv(64);
    expect(() => backend.forward([{ kv, tokens, logits: "last" }])).toThrow(/^layer 1: router scores/);
    expect(kv.lengthTokens).toBe(0);
    backend.close();
  });

  it("an old device and a missing one are refused by name", () => {
    const old = new FakeDriver({ device: { name: "GTX", computeCapability: 75 } });
    expect(() => open(old)).toThrow(/GTX has compute capability 7\.5, the kernels need 8 or newer/);
    expect(old.leaks).toEqual([]);
    const missing = { driver: new FakeDriver(), steps: null!, kernelImage: FAKE_IMAGE, device: 3 };
    expect(() => createCudaBackend(tinyModel(), addon!, missing)).toThrow(/device 3 of 1/);
  });
});
