import { describe, expect, it } from "vitest";
import { FakeBackend, hashed } from "../../test/fixtures/fake-backend.ts";
import { SchedulerHarness } from "../../test/fixtures/scheduler-harness.ts";
import { GrammarError } from "../grammar/grammar-error.ts";
import type { OpenConstraint } from "../session/generate.ts";

const VOCAB = 40;
const THINK_END = 7;
const constraint = { json: { schema: {} } };

/** Content must count up from 20; thinking may be anything but 30. */
function counting(seen: string[]): OpenConstraint {
  return () => {
    let next = 20;
    const only = (ids: number[]) => {
      const mask = new Uint32Array(2);
      for (const id of ids) mask[id >> 5] |= 1 << (id & 31);
      return mask;
    };
    return {
      mask: (isThinking) => {
        seen.push(isThinking ? "thinking" : "content");
        return only(
          isThinking ? Array.from({ length: VOCAB }, (_, id) => id).filter((id) => id !== 30) : [next],
        );
      },
      accept: (id) => {
        expect(id).toBe(next);
        next++;
      },
    };
  };
}

describe("a constraint", () => {
  it("rules the content of its own request, after the thinking", async () => {
    const seen: string[] = [];
    const harness = new SchedulerHarness(
      new FakeBackend(VOCAB, hashed(VOCAB), 24),
      {},
      undefined,
      counting(seen),
    );
    const free = harness.submit([1, 2, 3]);
    const thinking = { openId: 6, closeId: THINK_END, startsOpen: true, budgetTokens: 4 };
    const bound = harness.submit([1, 2, 3], {
      constraint,
      thinking,
      sampling: { temperature: 2 },
      topLogprobs: 0,
    });
    await harness.settle();
    const close = bound.tokens.indexOf(THINK_END);
    expect(close).toBeGreaterThanOrEqual(0);
    expect(bound.tokens.slice(close + 1)).toEqual(Array.from({ length: 9 - close }, (_, at) => 20 + at));
    expect(bound.tokens).not.toContain(30);
    expect(seen).toEqual(bound.tokens.map((_, at) => (at <= close ? "thinking" : "content")));
    const alone = new SchedulerHarness(new FakeBackend(VOCAB, hashed(VOCAB), 24));
    expect(free.tokens).toEqual((await alone.run([1, 2, 3])).tokens);
  });

  it("that cannot be kept ends its request as a wrong one, not as a fault", async () => {
    const tooHard: OpenConstraint = () => ({
      mask: () => {
        throw new GrammarError("", "too many ways to go on");
      },
      accept: () => {},
    });
    const harness = new SchedulerHarness(new FakeBackend(VOCAB, hashed(VOCAB), 24), {}, undefined, tooHard);
    const hard = harness.submit([1, 2], { constraint });
    const other = harness.submit([3, 4]);
    await harness.settle();
    expect(hard.error).toMatchObject({ code: "request", message: "too many ways to go on" });
    expect(other.finish?.finishReason).toBe("length");
    expect(harness.scheduler.stats().health.state).toBe("ready");
    const plain = new SchedulerHarness(new FakeBackend(VOCAB, hashed(VOCAB), 24));
    await expect(plain.run([1], { constraint })).rejects.toMatchObject({ code: "request" });
  });
});
