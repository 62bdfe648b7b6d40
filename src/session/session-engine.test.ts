import { afterEach, describe, expect, it, vi } from "vitest";
import { CancelledError, MemoryError } from "../core/errors.ts";
import type { GenerateEvent, GenerateRequest } from "./generate.ts";
import { SessionEngine, type SessionEngineOptions } from "./session-engine.ts";
import { ContextFullError, EngineCrashedError } from "./session-errors.ts";

const workerUrl = new URL("../../test/fixtures/fake-engine-worker.ts", import.meta.url);
// A lost message must fail the test soon, not after the default minute.
vi.setConfig({ testTimeout: 10_000 });
const engines: SessionEngine[] = [];

async function open(modelPath: string, options: Partial<SessionEngineOptions> = {}): Promise<SessionEngine> {
  const engine = await SessionEngine.open({ modelPath, workerUrl, ctxTokens: 2000, ...options });
  engines.push(engine);
  return engine;
}

afterEach(async () => {
  await Promise.all(engines.splice(0).map((engine) => engine.close()));
});

const request = (extra: Partial<GenerateRequest> = {}): GenerateRequest => ({
  promptTokens: Int32Array.of(1, 2, 3),
  sampling: { temperature: 0 },
  stopTokenIds: [299],
  ...extra,
});

async function collect(stream: AsyncIterable<GenerateEvent>): Promise<GenerateEvent[]> {
  const events: GenerateEvent[] = [];
  for await (const event of stream) events.push(event);
  return events;
}

describe("engine", () => {
  it("loads with progress and streams an answer", async () => {
    const labels: string[] = [];
    const engine = await open("good", { onProgress: ({ label }) => labels.push(label) });
    expect(labels).toEqual(["load"]);
    expect(engine.info).toMatchObject({ backendName: "fake", warnings: ["fake weights"] });
    const events = await collect(engine.generate(request({ maxTokens: 5 })));
    expect(events.map((event) => event.kind)).toEqual(["prompt", ...new Array(5).fill("token"), "finish"]);
    expect(events.at(-1)).toMatchObject({ finishReason: "length", completionTokens: 5 });
    expect(await engine.stats()).toMatchObject({ sessionTokens: 7, ctxTokens: 2000, weightBytes: 1000 });
  });

  it("keeps the main thread free while the worker computes", async () => {
    const engine = await open("good");
    let ticks = 0;
    const timer = setInterval(() => ticks++, 5);
    await collect(engine.generate(request({ maxTokens: 60 })));
    clearInterval(timer);
    expect(ticks).toBeGreaterThan(5); // 60 tokens take at least 120 ms
  });

  it("stops an answer through the signal and keeps the session", async () => {
    const engine = await open("good");
    const controller = new AbortController();
    let tokens = 0;
    const events: GenerateEvent[] = [];
    for await (const event of engine.generate(request(), { signal: controller.signal })) {
      events.push(event);
      if (event.kind === "token" && ++tokens === 3) controller.abort();
    }
    const finish = events.at(-1);
    expect(finish).toMatchObject({ kind: "finish", finishReason: "cancelled" });
    expect(finish?.kind === "finish" && finish.completionTokens).toBeLessThan(100);
    const again = await collect(engine.generate(request({ maxTokens: 1 })));
    expect(again.at(-1)).toMatchObject({ finishReason: "length" });
  });

  it("stops the work when the reader leaves the loop", async () => {
    const engine = await open("good");
    for await (const event of engine.generate(request())) if (event.kind === "token") break;
    const stats = await engine.stats(); // waits for the running call
    expect(stats.sessionTokens).toBeLessThan(500);
  });

  it("cancels prefill and evaluation with a typed error", async () => {
    const engine = await open("good");
    const tokens = new Int32Array(1500);
    for (const run of [
      (signal: AbortSignal) => engine.prefill(tokens, { signal, chunkTokens: 1 }),
      (signal: AbortSignal) => engine.evaluate({ tokens, windowTokens: 1500, chunkTokens: 1 }, { signal }),
    ]) {
      const controller = new AbortController();
      const result = run(controller.signal);
      setTimeout(() => controller.abort(), 30);
      await expect(result).rejects.toBeInstanceOf(CancelledError);
      await expect(run(AbortSignal.abort())).rejects.toBeInstanceOf(CancelledError);
    }
  });

  it("passes typed errors with their numbers", async () => {
    const engine = await open("good");
    const failing = collect(engine.generate(request({ promptTokens: new Int32Array(2001) })));
    await expect(failing).rejects.toBeInstanceOf(ContextFullError);
    await expect(failing).rejects.toMatchObject({ addedTokens: 2001, capacityTokens: 2000 });
    await expect(engine.prefill(Int32Array.of(300))).rejects.toMatchObject({ code: "session" });
    const bad = collect(engine.generate(request({ sampling: { topP: 2 } })));
    await expect(bad).rejects.toMatchObject({ code: "request", message: expect.stringContaining("topP") });
    await expect(open("no-memory")).rejects.toMatchObject({ neededBytes: 300, availableBytes: 100 });
    await expect(open("no-memory")).rejects.toBeInstanceOf(MemoryError);
  });

  it("resizes the session", async () => {
    const engine = await open("good");
    await engine.resize(10);
    const events = await collect(engine.generate(request()));
    expect(events.at(-1)).toMatchObject({ finishReason: "length", completionTokens: 7 });
  });

  it("answers queued calls in order and refuses calls after close", async () => {
    const engine = await open("good");
    const order: string[] = [];
    await Promise.all([
      collect(engine.generate(request({ maxTokens: 20 }))).then(() => order.push("answer")),
      engine.stats().then(() => order.push("stats")),
    ]);
    expect(order).toEqual(["answer", "stats"]);
    await engine.close();
    await engine.close();
    await expect(engine.stats()).rejects.toThrow(/closed/);
  });

  it("closes while an answer runs", async () => {
    const engine = await open("good");
    const running = collect(engine.generate(request()));
    await new Promise((resolve) => setTimeout(resolve, 30));
    await engine.close();
    expect((await running).at(-1)).toMatchObject({ finishReason: "cancelled" });
  });
});

describe("a failing worker", () => {
  it("ends only the call when a forward pass throws (case 35)", async () => {
    const engine = await open("throw");
    await expect(collect(engine.generate(request()))).rejects.toThrow("kernel fault");
    expect(await engine.stats()).toMatchObject({ ctxTokens: 2000 });
  });

  it("rejects every pending call when the thread dies, and later calls at once (case 36)", async () => {
    const engine = await open("exit");
    const answer = collect(engine.generate(request()));
    const stats = engine.stats();
    await expect(answer).rejects.toBeInstanceOf(EngineCrashedError);
    await expect(stats).rejects.toBeInstanceOf(EngineCrashedError);
    await expect(engine.stats()).rejects.toThrow(/ended with code 4/);
  });

  it("reports an exhausted heap", async () => {
    const engine = await open("heap", { resourceLimits: { maxOldGenerationSizeMb: 40 } });
    await expect(collect(engine.generate(request()))).rejects.toThrow(/out of JavaScript heap memory/);
  });

  it("rejects opening when the thread dies or its program is missing", async () => {
    await expect(open("load-crash")).rejects.toThrow(/ended with code 3/);
    const missing = new URL("./no-such-worker.ts", import.meta.url);
    await expect(open("good", { workerUrl: missing })).rejects.toBeInstanceOf(EngineCrashedError);
  });
});
