import { describe, expect, it } from "vitest";
import { FakeBackend, hashed } from "../../test/fixtures/fake-backend.ts";
import { evaluate } from "./evaluate.ts";
import { topLogprobs } from "./logprobs.ts";

const VOCAB = 300;

describe("evaluation", () => {
  const tokens = Int32Array.from({ length: 50 }, (_, i) => (i * 11) % VOCAB);
  const nllAt = (from: number, target: number) => {
    const row = hashed(VOCAB)(Array.from(tokens.subarray(from, target)));
    return -topLogprobs(row, tokens[target], 0).chosen.logprob;
  };
  const backend = (batch = 64) => new FakeBackend(VOCAB, hashed(VOCAB), batch);

  it.each([1, 3, 16, 64])("scores every token once in chunks of %i", (chunkTokens) => {
    const result = evaluate(backend(), { tokens, windowTokens: 100, skipTokens: 8, chunkTokens });
    expect(result.scoredCount).toBe(42);
    const expected = Array.from({ length: 42 }, (_, i) => nllAt(0, i + 8));
    result.nll.forEach((value, i) => {
      expect(value).toBeCloseTo(expected[i], 4);
    });
    const mean = expected.reduce((a, b) => a + b, 0) / 42;
    expect(result.perplexity).toBeCloseTo(Math.exp(mean), 1);
    expect(result.perplexityError).toBeGreaterThan(0);
  });

  it("slides windows: later tokens are scored with the window's context only", () => {
    const result = evaluate(backend(), { tokens, windowTokens: 20, strideTokens: 10 });
    expect(result.scoredCount).toBe(49);
    expect(result.nll[0]).toBeCloseTo(nllAt(0, 1), 4);
    expect(result.nll[19]).toBeCloseTo(nllAt(10, 20), 4); // second window starts at 10
    expect(result.nll[48]).toBeCloseTo(nllAt(30, 49), 4);
    expect(evaluate(backend(), { tokens, windowTokens: 25 }).scoredCount).toBe(48);
  });

  it("asks for no logits where nothing is scored, frees its KV state and can be cancelled", () => {
    const fake = backend(8);
    const signal = { aborted: false };
    const onProgress = () => {
      signal.aborted = true;
    };
    expect(() => evaluate(fake, { tokens, windowTokens: 50 }, { signal, onProgress })).toThrow(
      /cancelled after 8/,
    );
    expect(fake.kvs[0].closed).toBe(true);
  });

  it("refuses bad windows and short texts", () => {
    expect(() => evaluate(backend(), { tokens, windowTokens: 1 })).toThrow(/window/);
    expect(() => evaluate(backend(), { tokens, windowTokens: 10, strideTokens: 11 })).toThrow(/stride/);
    expect(() => evaluate(backend(), { tokens, windowTokens: 60, skipTokens: 50 })).toThrow(/more than 50/);
  });
});
