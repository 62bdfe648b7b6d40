// The CUDA backend under the scheduler when things fail: what requests and the health say of a lost device, of one failed
// launch, of memory that ran out; and which decode steps are replayed.
import { describe, expect, it } from "vitest";
import type { LogitsWanted } from "../../src/backend/backend.ts";
import { createCudaBackend } from "../../src/backend/cuda/cuda-backend.ts";
import { CudaError } from "../../src/backend/cuda/cuda-error.ts";
import { type CudaPass, stepKey } from "../../src/backend/cuda/pass.ts";
import { StepGraphs } from "../../src/backend/cuda/step-graphs.ts";
import type { CudaSteps } from "../../src/backend/cuda/steps.ts";
import { DeviceStream } from "../../src/backend/cuda/stream.ts";
import { loadNative } from "../../src/backend/native.ts";
import { nativeKernels } from "../../src/backend/native-kernels.ts";
import { BackendFaultError } from "../../src/scheduler/scheduler-errors.ts";
import { emulatedSteps } from "../fixtures/emulated-cuda-steps.ts";
import { FAKE_IMAGE, FakeDriver } from "../fixtures/fake-driver.ts";
import { SchedulerHarness } from "../fixtures/scheduler-harness.ts";
import { tinyModel } from "../fixtures/tiny-model.ts";

const { addon, reason } = loadNative();
const PROMPTS = [
  [1, 2, 3],
  [4, 5, 6, 7],
];
const MOST_TOKENS = 6;

describe.skipIf(addon === null)(`cuda backend under the scheduler ${reason ?? ""}`, () => {
  function open(driver: FakeDriver, change: (steps: CudaSteps) => CudaSteps = (steps) => steps) {
    const kernels = nativeKernels(addon!);
    const steps = change(emulatedSteps(driver, kernels, new kernels.Workspace(1)));
    return createCudaBackend(tinyModel(), addon!, {
      ...{ driver, steps, kernelImage: FAKE_IMAGE, maxBatchTokens: 32 },
    });
  }

  async function answers(change?: (steps: CudaSteps) => CudaSteps) {
    const driver = new FakeDriver();
    const backend = open(driver, change);
    const harness = new SchedulerHarness(backend, { ctxTokens: 64 });
    const received = PROMPTS.map((prompt) => harness.submit(prompt, { maxTokens: MOST_TOKENS }));
    await harness.settle();
    backend.close();
    expect(driver.leaks).toEqual([]);
    return { harness, received };
  }

  it.each(["CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_UNKNOWN"])(
    "%s in the middle of answers ends them all and the health, by name",
    async (result) => {
      const driver = new FakeDriver();
      const backend = open(driver);
      const harness = new SchedulerHarness(backend, { ctxTokens: 64 });
      const received = PROMPTS.map((prompt) => harness.submit(prompt, { maxTokens: MOST_TOKENS }));
      for (let step = 0; step < 3; step++) harness.scheduler.step();
      driver.lose(result);
      await harness.settle();
      for (const { error } of received) {
        expect(error).toBeInstanceOf(BackendFaultError);
        expect(error!.message).toContain(result);
      }
      expect(harness.failed).toContain(result);
      expect(harness.submit([1]).error).toBeInstanceOf(BackendFaultError);
      backend.close();
    },
  );

  it("one failed launch costs nobody an answer", async () => {
    let calls = 0;
    const { harness, received } = await answers((steps) => ({
      ...steps,
      attend: (...args) => {
        if (++calls === 20) throw new CudaError("cuLaunchKernel", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "");
        return steps.attend(...args);
      },
    }));
    expect(calls).toBeGreaterThan(20);
    expect(harness.failed).toBeUndefined();
    expect(harness.scheduler.stats().counters.forwardFaults).toBe(1);
    const undisturbed = (await answers()).received;
    expect(received.map(({ tokens }) => tokens)).toEqual(undisturbed.map(({ tokens }) => tokens));
  });

  it("the device is full before any answer: a memory error that says what to do", () => {
    const driver = new FakeDriver();
    const backend = open(driver);
    driver.failAt("alloc", "CUDA_ERROR_OUT_OF_MEMORY");
    const start = () => new SchedulerHarness(backend, { ctxTokens: 64 });
    expect(start).toThrow(expect.objectContaining({ code: "memory" }));
    expect(start).not.toThrow();
    backend.close();
    expect(driver.leaks).toEqual([]);
  });

  it("memory is taken weights first, before any kernel, and given back", () => {
    const driver = new FakeDriver();
    const backend = open(driver);
    const weightBytes = backend.stats().weightBytes;
    const taken = driver.calls.filter(({ method }) => method === "alloc").map(({ bytes }) => bytes!);
    expect(taken[0]).toBe(Math.max(...taken));
    // The matrices, then the small arrays.
    expect(taken[0] + taken[1]).toBe(weightBytes);
    expect(driver.launched).toEqual([]);
    backend.close();
    const freed = driver.calls.filter(({ method }) => method === "free").length;
    expect(freed).toBe(taken.length);
  });
});

describe("recorded steps", () => {
  const segment = (id: number, logits: LogitsWanted) => ({ kv: { id }, logits });
  const keyOf = (...segments: ReturnType<typeof segment>[]) => {
    return stepKey({ batch: { segments } } as unknown as CudaPass);
  };

  it("are told apart by sequences, their order, and whose logits are wanted", () => {
    const keys = [
      keyOf(segment(1, "last")),
      keyOf(segment(1, "none")),
      keyOf(segment(1, "top")),
      keyOf(segment(1, "all")),
      keyOf(segment(11, "last")),
      keyOf(segment(1, "last"), segment(1, "last")),
      keyOf(segment(1, "last"), segment(2, "none")),
      keyOf(segment(2, "none"), segment(1, "last")),
      keyOf(segment(1, "none"), segment(2, "last")),
    ];
    expect(new Set(keys).size).toBe(keys.length);
    expect(keyOf(segment(3, "last"), segment(4, "last"))).toBe(keyOf(segment(3, "last"), segment(4, "last")));
  });

  it("are forgotten oldest first, once the stream is empty", () => {
    const driver = new FakeDriver();
    const graphs = new StepGraphs(new DeviceStream(driver));
    const runs = new Map<string, number>();
    const run = (key: string) => {
      graphs.run(key, () => driver.enqueue(() => runs.set(key, (runs.get(key) ?? 0) + 1)));
    };
    const keys = Array.from({ length: 33 }, (_, i) => `step ${i}`);
    for (const key of keys.slice(0, 32)) for (let i = 0; i < 3; i++) run(key);
    run(keys[0]); // used again: the next one is the oldest
    run(keys[32]);
    const gone = driver.calls.findIndex(({ method }) => method === "destroyGraph");
    expect(driver.calls[gone - 1].method).toBe("synchronize");
    expect(graphs.replays).toBe(32 * 2 + 1);
    run(keys[0]);
    expect(graphs.replays).toBe(32 * 2 + 2);
    run(keys[1]);
    expect(graphs.replays).toBe(32 * 2 + 2);
    expect([...runs.values()].reduce((sum, count) => sum + count, 0)).toBe(32 * 3 + 4);
    graphs.clear();
    expect(driver.leaks).toEqual(["stream"]);
  });
});
