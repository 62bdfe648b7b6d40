// Whether a row or its candidates are given, the sampler chooses the same token with the same random numbers.
import { describe, expect, it } from "vitest";
import type { TopLogits } from "../backend/backend.ts";
import { topOfRow } from "../backend/top-logits.ts";
import { Random } from "../core/random.ts";
import { topLogprobs } from "./logprobs.ts";
import { Sampler } from "./sampler.ts";
import type { SamplingParams } from "./sampling-params.ts";

const random = new Random(17);
const uniform = (from: number, to: number) => from + random.nextFloat() * (to - from);
const pick = <Value>(...values: Value[]): Value => values[random.nextUint32() % values.length];

/** A row as models make them: a bell, steeper or flatter, with a few tokens above it; sometimes with ties or -Infinity. */
function randomRow(vocab: number): Float32Array {
  const spread = pick(0.05, 1, 2.5, 4);
  const step = pick(0, 0, 0.25, 1);
  const dead = pick(0, 0, 0.5, 0.999);
  const row = Float32Array.from({ length: vocab }, () => {
    const bell = uniform(-1, 1) + uniform(-1, 1) + uniform(-1, 1);
    return random.nextFloat() < dead ? Number.NEGATIVE_INFINITY : bell * spread;
  });
  for (let i = pick(0, 1, 5, 40); i > 0; i--) row[random.nextUint32() % vocab] = uniform(0, 14);
  row[random.nextUint32() % vocab] = uniform(0, 14);
  return step === 0 ? row : row.map((value) => Math.round(value / step) * step);
}

function randomParams(vocab: number): Partial<SamplingParams> {
  return {
    temperature: pick(0, 0.3, 0.7, 1, 1, 1, 1.3, 2.5),
    topK: pick(0, 0, 0, 1, 40, 255, 256, 257, 400, vocab),
    topP: pick(1, 1, 0, 0.5, 0.9, 0.95, 0.999),
    minP: pick(0, 0, 0.05, 0.001, 1),
    seed: random.nextUint32(),
    ...pick(
      {},
      {},
      {},
      {},
      { logitBias: { 3: 2, [vocab - 1]: -5 } },
      { presencePenalty: 0.5 },
      { repeatPenalty: 1.2 },
    ),
  };
}

function randomMask(vocab: number): Uint32Array | undefined {
  const words = Math.ceil(vocab / 32);
  const some = () => Uint32Array.from({ length: words }, () => random.nextUint32());
  const few = () =>
    some().map((word) => word & random.nextUint32() & random.nextUint32() & random.nextUint32());
  const one = () => {
    const mask = new Uint32Array(words);
    const id = random.nextUint32() % vocab;
    mask[id >> 5] = 2 ** (id & 31);
    return mask;
  };
  const none = (): Uint32Array | undefined => undefined;
  return pick(none, none, some, few, one)();
}

/** Candidates whose row is counted when it is taken, with a sum that is off by as much as it may be. */
function candidatesOf(row: Float32Array, error: number): { top: TopLogits; rows: () => number } {
  const exact = topOfRow(row);
  let rows = 0;
  const take = () => {
    rows++;
    return row;
  };
  return { top: { ...exact, logSumExp: () => exact.logSumExp() + error, row: take }, rows: () => rows };
}

function outcome(sample: () => number): number | string {
  try {
    return sample();
  } catch (error) {
    return (error as Error).message;
  }
}

describe("candidates and rows", () => {
  it.each([96, 300, 2000])("give the same tokens for any parameters, of a vocabulary of %d", (vocab) => {
    let trials = 0;
    let alone = 0;
    for (let setting = 0; setting < 1000; setting++) {
      const params = randomParams(vocab);
      const [ofRow, ofTop] = [new Sampler(params, vocab), new Sampler(params, vocab)];
      for (let i = 0; i < 4; i++) {
        const row = randomRow(vocab);
        const mask = randomMask(vocab);
        const tokens = Int32Array.from({ length: 9 }, () => random.nextUint32() % vocab);
        const { top, rows } = candidatesOf(row, pick(-1e-6, 0, 1e-6));
        const expected = outcome(() => ofRow.sample(row, tokens, 4, mask));
        const found = outcome(() => ofTop.sample(top, tokens, 4, mask));
        expect(found, JSON.stringify({ vocab, setting, i, params, masked: mask !== undefined })).toBe(
          expected,
        );
        trials++;
        if (rows() === 0) alone++;
      }
    }
    expect(alone / trials).toBeGreaterThan(0.2);
  });

  it("need no row for what people ask of a usual distribution", () => {
    const vocab = 20_000;
    let rows = 0;
    const settings = [
      { temperature: 0 },
      {},
      { minP: 0.02, temperature: 0.7 },
      { topP: 0.95, minP: 0 },
      { topP: 0.9, minP: 0, temperature: 0.6 },
      { topK: 40, topP: 0.9, minP: 0 },
      { topP: 1, minP: 0, temperature: 0.8 },
    ];
    for (const params of settings) {
      const sampler = new Sampler(params, vocab);
      for (let i = 0; i < 40; i++) {
        const row = Float32Array.from({ length: vocab }, () => uniform(-1, 1) + uniform(-4, 2));
        for (let k = 0; k < 30; k++) row[(k * 997 + i) % vocab] = 16 - k / 3;
        const candidates = candidatesOf(row, 1e-6);
        sampler.sample(candidates.top);
        rows += candidates.rows();
      }
    }
    expect(rows).toBeLessThan(0.02 * settings.length * 40);
  });

  it.each([
    [Number.NaN, 0],
    [Number.NaN, 299],
    [Number.POSITIVE_INFINITY, 7],
  ])("refuse %s at %d alike", (value, at) => {
    const row = randomRow(300);
    row[at] = value;
    const nothing = new Float32Array(300).fill(Number.NEGATIVE_INFINITY);
    const mask = new Uint32Array(10).fill(1);
    for (const temperature of [0, 1]) {
      const sampler = new Sampler({ temperature }, 300);
      for (const [each, masked] of [[row], [nothing], [row, mask]] as const) {
        const expected = outcome(() => sampler.sample(each, [], 0, masked));
        expect(expected).toMatch(/damaged|no token/);
        expect(outcome(() => sampler.sample(topOfRow(each), [], 0, masked))).toBe(expected);
      }
      expect(() => topLogprobs(topOfRow(row), 3, 1)).toThrow(/damaged/);
    }
  });

  it("give the same log-probabilities, also of a token that is no candidate", () => {
    for (let trial = 0; trial < 200; trial++) {
      const vocab = pick(5, 300, 3000);
      const row = randomRow(vocab);
      const chosen = random.nextUint32() % vocab;
      const count = pick(0, 1, 20, 128);
      expect(topLogprobs(topOfRow(row), chosen, count)).toEqual(topLogprobs(row, chosen, count));
    }
  });
});

describe("top-p after top-k", () => {
  it("takes its share of all that top-k kept, whatever min-p drops afterwards", () => {
    // Of four tokens with shares .4, .3, .2, .1, half needs two; of the two that min-p leaves it would need one.
    const row = Float32Array.from([0.4, 0.3, 0.2, 0.1, 1e-6], Math.log);
    const sampler = new Sampler({ topK: 4, topP: 0.5, minP: 0.6 }, 5);
    const seen = new Set(Array.from({ length: 200 }, () => sampler.sample(row)));
    expect([...seen].sort()).toEqual([0, 1]);
  });
});
