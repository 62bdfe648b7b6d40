import { describe, expect, it } from "vitest";
import { FakeBackend, hashed } from "../../test/fixtures/fake-backend.ts";
import { type Received, SchedulerHarness } from "../../test/fixtures/scheduler-harness.ts";
import { Ds4Error } from "../core/errors.ts";
import { Random } from "../core/random.ts";
import { argmax } from "../session/sampler.ts";
import { BackendFaultError } from "./scheduler-errors.ts";

const VOCAB = 40;
const logits = hashed(VOCAB);

/** What a lone greedy run answers. */
function alone(prompt: readonly number[], count: number): number[] {
  const tokens = [...prompt];
  for (let i = 0; i < count; i++) tokens.push(argmax(logits(tokens)));
  return tokens.slice(prompt.length);
}

const randomTokens = (random: Random, count: number) =>
  Array.from({ length: count }, () => random.nextUint32() % VOCAB);

describe("every interleaving gives each request the answer of a lone run", () => {
  for (let seed = 0; seed < 60; seed++) {
    it(`random arrivals, cancels, slow readers and faults, seed ${seed}`, async () => {
      const random = new Random(seed);
      const below = (limit: number) => random.nextUint32() % limit;
      const backend = new FakeBackend(VOCAB, logits, 24);
      const faulty = seed % 3 === 0;
      let sinceFault = 0;
      backend.onForward = () => {
        if (!faulty || sinceFault++ < 3 || below(15) > 0) return;
        sinceFault = 0;
        throw new Error("a passing fault");
      };
      const harness = new SchedulerHarness(backend, {
        ...{ slots: 1 + below(4), chunkTokens: 1 + below(20), eventWindow: 1 + below(6), ctxTokens: 200 },
        ...{ checkpointBytes: [0, 600, 5000][below(3)], checkpointTokens: 1 + below(40) },
      });
      const stems = [1, 2, 3].map(() => randomTokens(random, 10 + below(60)));
      const prompts: number[][] = [];
      const cancelled = new Set<Received>();
      for (let round = 0; round < 600; round++) {
        if (prompts.length < 25 && below(6) === 0) {
          const stem = stems[below(3)];
          const prompt = [...stem.slice(0, 1 + below(stem.length)), ...randomTokens(random, below(20))];
          prompts.push(prompt);
          harness.submit(prompt, { maxTokens: 1 + below(15) }).reads = below(3) > 0;
        }
        for (const received of harness.received) {
          if (!received.reads && below(4) === 0) {
            received.control.consumedEvents = Math.min(
              received.events.length,
              received.control.consumedEvents + 1,
            );
          }
          if (below(400) > 0 || received.ended) continue;
          received.control.cancelled = true;
          cancelled.add(received);
        }
        harness.nowMs++;
        harness.scheduler.step();
      }
      for (const received of harness.received) {
        received.reads = true;
        received.control.consumedEvents = received.events.length;
      }
      await harness.settle();
      for (const [at, received] of harness.received.entries()) {
        expect(received.ended, `request ${at}`).toBe(true);
        expect(received.tokens).toEqual(alone(prompts[at], received.tokens.length));
        if (received.error !== undefined)
          expect(faulty && received.error instanceof BackendFaultError).toBe(true);
        else if (!cancelled.has(received)) expect(received.finish?.finishReason).toBe("length");
      }
      const { slots, queueLength, counters } = harness.scheduler.stats();
      expect(slots.every(({ state }) => state === "idle" || state === "empty")).toBe(true);
      expect(queueLength).toBe(0);
      expect(counters.finished + counters.cancelled + counters.failed).toBe(prompts.length);
    });
  }
});

describe("fairness", () => {
  function timed(msPerToken: number, settings = {}) {
    const backend = new FakeBackend(VOCAB, logits, 64);
    const harness = new SchedulerHarness(backend, { ctxTokens: 4000, chunkTokens: 60, ...settings });
    const forward = backend.forward.bind(backend);
    backend.forward = (ranges) => {
      harness.nowMs += 5 + msPerToken * ranges.reduce((sum, { tokens }) => sum + tokens.length, 0);
      return forward(ranges);
    };
    return { backend, harness };
  }

  it("decodes on while another prompt is read, with a bounded gap (case 102)", async () => {
    const { harness } = timed(4, { decodeGapMs: 100 });
    const random = new Random(1);
    const first = harness.submit(randomTokens(random, 20), { maxTokens: 300 });
    while (first.tokens.length < 10) harness.scheduler.step();
    const second = harness.submit(randomTokens(random, 1200), { maxTokens: 5 });
    const before = first.tokens.length;
    while (second.tokens.length === 0) harness.scheduler.step();
    const during = first.atMs.slice(before);
    const gaps = during.slice(1).map((at, index) => at - during[index]);
    expect(Math.max(...gaps.slice(4))).toBeLessThanOrEqual(130); // once the pacer has learnt
    expect(first.tokens.length - before).toBeGreaterThan(40);
    expect(second.atMs[0] - during[0]).toBeLessThan(1200 * 4 * 1.6); // and the prompt is not starved
    await harness.settle();
    expect(first.finish?.completionTokens).toBe(300);
  });

  it("lets a short request pass a long prompt, and the long one go on", async () => {
    const { harness } = timed(1, { slots: 3 });
    const random = new Random(2);
    const long = harness.submit(randomTokens(random, 3000));
    harness.scheduler.step();
    const short = harness.submit(randomTokens(random, 50), { maxTokens: 3 });
    await harness.settle();
    expect(short.atMs.at(-1)! - 65).toBeLessThan(500);
    expect(long.finish?.completionTokens).toBe(10);
  });

  it("asks for rows at a chunk's end and where a parameter may change every logit, else for candidates", async () => {
    const { backend, harness } = timed(1, { slots: 2 });
    harness.submit([1, 2], { maxTokens: 4 });
    harness.submit([3], { maxTokens: 4, sampling: { temperature: 0, presencePenalty: 0.5 } });
    await harness.settle();
    expect(backend.wanted).toEqual(["last", "top last", "top last", "top last", "last"]);
  });

  it("decodes all slots as one batch", async () => {
    const { backend, harness } = timed(1, { slots: 8 });
    for (let i = 0; i < 8; i++) harness.submit([i, i + 1, i + 2], { maxTokens: 30 });
    await harness.settle();
    expect(backend.calls.length).toBeLessThan(8 + 30 + 8);
    const { counters } = harness.scheduler.stats();
    expect(counters.decodeSequences / counters.decodeSteps).toBeGreaterThan(5);
  });
});

describe("cancelling", () => {
  it("stops a prompt within a chunk and keeps what was read (case 81)", async () => {
    const backend = new FakeBackend(VOCAB, logits, 24);
    const harness = new SchedulerHarness(backend);
    const prompt = randomTokens(new Random(3), 160);
    const first = harness.submit(prompt);
    for (let i = 0; i < 4; i++) harness.scheduler.step();
    first.control.cancelled = true;
    await harness.settle();
    expect(backend.calls).toHaveLength(4);
    expect(first.finish).toMatchObject({ finishReason: "cancelled", completionTokens: 0 });
    const again = await harness.run(prompt);
    expect(again.finish).toMatchObject({ reusedTokens: 64, reusedFrom: "slot" });
    expect(again.tokens).toEqual(alone(prompt, 10));
  });

  it("never starts a request that left while it waited (case 82)", async () => {
    const backend = new FakeBackend(VOCAB, logits, 24);
    const harness = new SchedulerHarness(backend, { slots: 1 });
    const all = [0, 1, 2, 3, 4, 5].map((i) => harness.submit([i, i, i], { maxTokens: 20 }));
    harness.scheduler.step();
    for (const received of all.slice(1, 5)) received.control.cancelled = true;
    await harness.settle();
    expect(all.map(({ finish }) => finish?.finishReason)).toEqual([
      ...["length", "cancelled", "cancelled", "cancelled", "cancelled", "length"],
    ]);
    expect(harness.scheduler.stats().backend.tokens).toBe(2 * (3 + 19));
  });
});

describe("faults", () => {
  it("end the request that is to blame and no other (case 35)", async () => {
    const backend = new FakeBackend(VOCAB, logits, 24);
    const harness = new SchedulerHarness(backend);
    const forward = backend.forward.bind(backend);
    backend.forward = (ranges) => {
      const bad = ranges.some(({ kv }) => kv === backend.kvs[0] && kv.lengthTokens === 8);
      if (bad) throw new Error("invariant broken");
      return forward(ranges);
    };
    const first = harness.submit([1, 2, 3]);
    const second = harness.submit([4, 5, 6]);
    await harness.settle();
    expect(first.error).toBeInstanceOf(BackendFaultError);
    expect(first.tokens).toEqual(alone([1, 2, 3], 6));
    expect(second.tokens).toEqual(alone([4, 5, 6], 10));
    expect(harness.failed).toBeUndefined();
    expect(harness.logs.length).toBeLessThanOrEqual(3);
    expect((await harness.run([7], { maxTokens: 5 })).tokens).toEqual(alone([7], 5));
  });

  it("of a backend that answers nothing more fail the health, and everything that waits (case 36)", async () => {
    for (const error of [new Error("sticky"), new Ds4Error("device-lost", "lost")]) {
      const backend = new FakeBackend(VOCAB, logits, 24);
      const harness = new SchedulerHarness(backend);
      const all = [1, 2, 3, 4].map((id) => harness.submit([id]));
      backend.onForward = (call) => {
        if (call > 4) throw error;
      };
      await harness.settle();
      for (const { error: own } of all) expect(own).toBeInstanceOf(BackendFaultError);
      expect(harness.failed).toBe(error.message);
      expect(harness.submit([1]).error).toBeInstanceOf(BackendFaultError);
    }
  });

  it("are not what a wrong request is: it is refused with its own error, and nothing runs", () => {
    const harness = new SchedulerHarness(new FakeBackend(VOCAB, logits, 24), { ctxTokens: 50 });
    const codes = [new Array(50).fill(1), [], [VOCAB]].map((prompt) => harness.submit(prompt).error);
    expect(codes).toMatchObject([{ code: "context-full" }, { code: "request" }, { code: "session" }]);
    expect(harness.scheduler.step()).toBe(false);
    expect(harness.scheduler.stats().counters).toMatchObject({ accepted: 0, refused: 3, failed: 0 });
  });

  it("in the logits end that request only", async () => {
    const backend = new FakeBackend(VOCAB, (tokens) =>
      tokens[0] === 1 ? new Float32Array(VOCAB).fill(NaN) : logits(tokens),
    );
    const harness = new SchedulerHarness(backend);
    const bad = harness.submit([1, 2]);
    const good = harness.submit([2, 3]);
    await harness.settle();
    expect(bad.error?.message).toMatch(/NaN/);
    expect(good.tokens).toEqual(alone([2, 3], 10));
  });
});
