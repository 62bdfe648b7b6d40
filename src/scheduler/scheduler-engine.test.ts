import { afterEach, describe, expect, it, vi } from "vitest";
import { ContextFullError, EngineCrashedError } from "../session/session-errors.ts";
import { SchedulerEngine, type SchedulerOptions } from "./scheduler-engine.ts";
import { BackendFaultError, QueueFullError } from "./scheduler-errors.ts";
import type { ScheduledEvent, ScheduledRequest } from "./scheduler-types.ts";

const workerUrl = new URL("../../test/fixtures/fake-scheduler-worker.ts", import.meta.url);
vi.setConfig({ testTimeout: 20_000 });
const engines: SchedulerEngine[] = [];

async function open(modelPath = "good", options: Partial<SchedulerOptions> = {}): Promise<SchedulerEngine> {
  const limits = { slots: 2, queueLimit: 2, chunkTokens: 16, ctxTokens: 400, checkpointBytes: 1e6 };
  const engine = await SchedulerEngine.open({ modelPath, workerUrl, ...limits, ...options });
  engines.push(engine);
  return engine;
}

afterEach(async () => {
  await Promise.all(engines.splice(0).map((engine) => engine.close()));
});

const request = (seed: number, extra: Partial<ScheduledRequest> = {}): ScheduledRequest => ({
  promptTokens: Int32Array.from({ length: 30 }, (_, at) => (at * 7 + seed * 31) % 256),
  sampling: { temperature: 0 },
  stopTokenIds: [],
  maxTokens: 20,
  ...extra,
});

async function collect(stream: AsyncIterable<ScheduledEvent>): Promise<ScheduledEvent[]> {
  const events: ScheduledEvent[] = [];
  for await (const event of stream) events.push(event);
  return events;
}

const ids = (events: ScheduledEvent[]) => events.flatMap((e) => (e.kind === "token" ? e.tokenId : []));

describe("scheduler engine", () => {
  it("serves several requests at once, each as if it were alone (case 102)", async () => {
    const engine = await open();
    const together = await Promise.all([1, 2, 3, 4].map((seed) => collect(engine.generate(request(seed)))));
    const alone = await open("good", { slots: 1 });
    for (const [at, events] of together.entries()) {
      expect(ids(events)).toEqual(ids(await collect(alone.generate(request(at + 1)))));
      expect(events.at(-1)).toMatchObject({ kind: "finish", finishReason: "length", completionTokens: 20 });
    }
    const { counters, slots } = await engine.stats();
    expect(counters).toMatchObject({ accepted: 4, finished: 4, promptTokens: 120 });
    expect(counters.decodeSequences).toBeGreaterThan(counters.decodeSteps); // they were batched
    expect(slots.map(({ state }) => state)).toEqual(["idle", "idle"]);
  });

  it("refuses at the call: full queue with a time, long prompts, wrong parameters", async () => {
    const engine = await open();
    const running = [1, 2, 3, 4].map((seed) => collect(engine.generate(request(seed))));
    expect(() => engine.generate(request(5))).toThrow(QueueFullError);
    try {
      engine.generate(request(5));
    } catch (error) {
      expect(error).toMatchObject({ code: "queue-full", queueLimit: 2 });
      expect((error as QueueFullError).retryAfterMs).toBeGreaterThanOrEqual(1000);
    }
    await Promise.all(running);
    const long = request(1, { promptTokens: new Int32Array(400) });
    expect(() => engine.generate(long)).toThrow(ContextFullError);
    expect(() => engine.generate(request(1, { sampling: { topP: 2 } }))).toThrow(/topP/);
    expect(() => engine.generate(request(1, { promptTokens: Int32Array.of(300) }))).toThrow(/0..299/);
    expect(await collect(engine.generate(request(5)))).toHaveLength(22);
  });

  it("cancels in decode and in the queue; a stream that is dropped unread stops too (cases 81 to 83)", async () => {
    const engine = await open("good", { slots: 1, queueLimit: 3 });
    const controller = new AbortController();
    const first = collect(engine.generate(request(1, { maxTokens: 300 }), { signal: controller.signal }));
    const queued = engine.generate(request(2), { signal: controller.signal });
    const unread = engine.generate(request(3));
    await unread.return();
    setTimeout(() => controller.abort(), 50);
    const events = await first;
    expect(events.at(-1)).toMatchObject({ finishReason: "cancelled" });
    expect(events.length).toBeLessThan(150);
    expect(await collect(queued)).toMatchObject([{ kind: "finish", finishReason: "cancelled", slot: -1 }]);
    expect((await collect(engine.generate(request(4)))).at(-1)).toMatchObject({ finishReason: "length" });
    expect((await engine.stats()).counters).toMatchObject({ cancelled: 3, finished: 1 });
  });

  it("pauses a request whose reader is slow, and only that one", async () => {
    const engine = await open("good", { eventWindow: 8 });
    const slow = engine.generate(request(1, { maxTokens: 60 }));
    await slow.next();
    const fast = await collect(engine.generate(request(2, { maxTokens: 60 })));
    expect(fast).toHaveLength(62);
    const { slots } = await engine.stats();
    expect(slots[0]).toMatchObject({ state: "paused", tokens: 30 + 7 });
    const rest = await collect(slow);
    expect(rest).toHaveLength(61);
    expect(rest.at(-1)).toMatchObject({ finishReason: "length", completionTokens: 60 });
  });

  it("frees the slot of a reader that takes nothing any more", async () => {
    const engine = await open("good", { eventWindow: 8, readerTimeoutMs: 100 });
    const slow = engine.generate(request(1, { maxTokens: 60 }));
    await slow.next();
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect((await engine.stats()).slots[0].state).toBe("idle");
    expect((await collect(slow)).at(-1)).toMatchObject({ finishReason: "cancelled", completionTokens: 8 });
    expect(await collect(engine.generate(request(2)))).toHaveLength(22); // a reader that reads is left alone
  });

  it("answers a lost device with an error for all, and a failed health (case 36)", async () => {
    const engine = await open("lost");
    const answers = [1, 2, 3].map((seed) => collect(engine.generate(request(seed))));
    for (const answer of answers) await expect(answer).rejects.toBeInstanceOf(BackendFaultError);
    expect(engine.health).toEqual({ state: "failed", reason: "the device fell off the bus" });
    expect(() => engine.generate(request(1))).toThrow(BackendFaultError);
    expect(await engine.stats()).toMatchObject({ health: { state: "failed" }, counters: { failed: 3 } });
  });

  it("rejects everything when the thread dies", async () => {
    const engine = await open("exit");
    await expect(collect(engine.generate(request(1)))).rejects.toBeInstanceOf(EngineCrashedError);
    expect(engine.health.state).toBe("failed");
  });

  it("closes while answers run", async () => {
    const engine = await open();
    const running = collect(engine.generate(request(1, { maxTokens: 300 })));
    await engine.close();
    expect((await running).at(-1)).toMatchObject({ finishReason: "cancelled" });
    expect(() => engine.generate(request(1))).toThrow(/closed/);
  });
});
