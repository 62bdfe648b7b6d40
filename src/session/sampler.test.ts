import { describe, expect, it } from "vitest";
import { expectLinear } from "../../test/fixtures/growth.ts";
import { Random } from "../core/random.ts";
import { argmax, Sampler } from "./sampler.ts";
import type { SamplingParams } from "./sampling-params.ts";

const PLAIN: Partial<SamplingParams> = { minP: 0, topP: 1, topK: 0, temperature: 1, seed: 7 };

function histogram(logits: number[], params: Partial<SamplingParams>, draws: number): number[] {
  const sampler = new Sampler({ ...PLAIN, ...params }, logits.length);
  const counts = new Array<number>(logits.length).fill(0);
  const row = Float32Array.from(logits);
  for (let i = 0; i < draws; i++) counts[sampler.sample(row)]++;
  return counts;
}

function softmax(logits: number[], temperature = 1): number[] {
  const weights = logits.map((value) => Math.exp(value / temperature));
  const sum = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight) => weight / sum);
}

/** Pearson's statistic over the entries expected at all. */
function chiSquare(counts: number[], expected: number[]): number {
  const draws = counts.reduce((a, b) => a + b, 0);
  return counts.reduce((sum, count, i) => {
    if (expected[i] === 0) return sum + (count === 0 ? 0 : Number.POSITIVE_INFINITY);
    return sum + (count - draws * expected[i]) ** 2 / (draws * expected[i]);
  }, 0);
}

function renormalised(probabilities: number[], kept: number[]): number[] {
  const sum = kept.reduce((total, i) => total + probabilities[i], 0);
  return probabilities.map((p, i) => (kept.includes(i) ? p / sum : 0));
}

describe("random numbers", () => {
  it("follow the published recurrence, so a seed means the same everywhere", () => {
    // SplitMix64(0) gives e220a8397b1dcdaf, 6e789e6aa1b965f4: the words of the state.
    const state = [0x7b1dcdafn, 0xe220a839n, 0xa1b965f4n, 0x6e789e6an];
    const rotate = (x: bigint, k: bigint) => ((x << k) | (x >> (32n - k))) & 0xffffffffn;
    const random = new Random(0);
    for (let i = 0; i < 50; i++) {
      const expected = (rotate((state[1] * 5n) & 0xffffffffn, 7n) * 9n) & 0xffffffffn;
      const t = (state[1] << 9n) & 0xffffffffn;
      state[2] ^= state[0];
      state[3] ^= state[1];
      state[1] ^= state[2];
      state[0] ^= state[3];
      state[2] ^= t;
      state[3] = rotate(state[3], 11n);
      expect(BigInt(random.nextUint32())).toBe(expected);
    }
  });

  it("differ by seed, and floats lie in [0, 1)", () => {
    expect(new Random(1).nextUint32()).not.toBe(new Random(2).nextUint32());
    expect(new Random(2n ** 64n - 1n).nextUint32()).toBe(new Random(-1n).nextUint32());
    const random = new Random(3);
    for (let i = 0; i < 10_000; i++) {
      const value = random.nextFloat();
      expect(value >= 0 && value < 1).toBe(true);
    }
  });
});

describe("sampler distributions (20,000 draws, fixed seed)", () => {
  const logits = [2, 1, 0, -1, 0.5, -3, 1.5, 0];
  const full = softmax(logits);
  const byLikelihood = [0, 6, 1, 4, 2, 7, 3, 5];
  // 0.999 quantile of chi-square with 7 degrees of freedom is 24.3
  const LIMIT = 24.3;

  it("draws from the softmax when no filter acts", () => {
    expect(chiSquare(histogram(logits, {}, 20_000), full)).toBeLessThan(LIMIT);
  });

  it("gives the same distribution through the filtered path", () => {
    expect(chiSquare(histogram(logits, { minP: 1e-9 }, 20_000), full)).toBeLessThan(LIMIT);
  });

  it("divides by the temperature", () => {
    expect(chiSquare(histogram(logits, { temperature: 0.5 }, 20_000), softmax(logits, 0.5))).toBeLessThan(
      LIMIT,
    );
    expect(chiSquare(histogram(logits, { temperature: 3 }, 20_000), full)).toBeGreaterThan(LIMIT);
  });

  it("keeps exactly top-k tokens, renormalised", () => {
    const expected = renormalised(full, byLikelihood.slice(0, 3));
    expect(chiSquare(histogram(logits, { topK: 3 }, 20_000), expected)).toBeLessThan(LIMIT);
  });

  it("keeps the fewest tokens that reach top-p, renormalised", () => {
    let mass = 0;
    let kept = 0;
    while (mass < 0.8) mass += full[byLikelihood[kept++]];
    const expected = renormalised(full, byLikelihood.slice(0, kept));
    expect(chiSquare(histogram(logits, { topP: 0.8 }, 20_000), expected)).toBeLessThan(LIMIT);
  });

  it("applies top-p to what top-k kept", () => {
    // Of the top 3 (shares .506, .307, .186), 0.8 needs two; of the whole vocabulary it would need four.
    const expected = renormalised(full, byLikelihood.slice(0, 2));
    expect(chiSquare(histogram(logits, { topK: 3, topP: 0.8 }, 20_000), expected)).toBeLessThan(LIMIT);
  });

  it("drops tokens below min-p of the likeliest", () => {
    const kept = byLikelihood.filter((i) => full[i] >= 0.2 * full[0]);
    const counts = histogram(logits, { minP: 0.2 }, 20_000);
    expect(chiSquare(counts, renormalised(full, kept))).toBeLessThan(LIMIT);
  });

  it("always keeps the likeliest token", () => {
    expect(histogram(logits, { topP: 0 }, 100)[0]).toBe(100);
    expect(histogram(logits, { minP: 1 }, 100)[0]).toBe(100);
    expect(histogram(logits, { topK: 1 }, 100)[0]).toBe(100);
  });

  it("breaks ties at the edge of top-k by the lowest id", () => {
    const counts = histogram([0, 1, 1, 1, 0], { topK: 2 }, 1000);
    expect(counts[3]).toBe(0);
    expect(counts[1] + counts[2]).toBe(1000);
  });

  it("agrees with a plain sort on random rows and filters", () => {
    const random = new Random(11);
    for (let trial = 0; trial < 60; trial++) {
      const size = 300;
      const row = Float32Array.from({ length: size }, () => random.nextFloat() * 40 - 20);
      const topK = trial % 3 === 0 ? 0 : 1 + (random.nextUint32() % 50);
      const topP = trial % 2 === 0 ? 1 : 0.5 + random.nextFloat() / 2;
      const minP = trial % 5 === 0 ? 0 : random.nextFloat() * 0.1;
      const temperature = 0.3 + random.nextFloat() * 3;
      const allowed = plainFilter(row, { temperature, topK, topP, minP });
      const sampler = new Sampler({ temperature, topK, topP, minP, seed: trial }, size);
      for (let i = 0; i < 50; i++) expect(allowed).toContain(sampler.sample(row));
    }
  });
});

/** The documented filters, the slow and obvious way. */
function plainFilter(
  row: Float32Array,
  params: Required<Pick<SamplingParams, "temperature" | "topK" | "topP" | "minP">>,
) {
  const order = Array.from(row.keys()).sort((a, b) => row[b] - row[a] || a - b);
  const kept = order.slice(0, params.topK === 0 ? order.length : params.topK);
  const weights = kept.map((id) => Math.exp((row[id] - row[order[0]]) / params.temperature));
  const total = weights.reduce((a, b) => a + b, 0);
  let mass = 0;
  return kept.filter((_, i) => {
    const keep = i === 0 || ((params.topP >= 1 || mass < params.topP * total) && weights[i] >= params.minP);
    mass += weights[i];
    return keep;
  });
}

describe("greedy", () => {
  it("takes the lowest id on a tie and uses no random number", () => {
    expect(new Sampler({ temperature: 0 }, 4).sample(Float32Array.of(1, 3, 3, 2))).toBe(1);
  });

  it("repeats exactly with the same seed", () => {
    const row = Float32Array.from({ length: 50 }, (_, i) => Math.sin(i));
    const draw = () => {
      const sampler = new Sampler({ seed: 123n }, 50);
      return Array.from({ length: 40 }, () => sampler.sample(row));
    };
    expect(draw()).toEqual(draw());
  });
});

describe("bias and penalties", () => {
  const greedy = (params: Partial<SamplingParams>, row: number[], tokens: number[] = [], generatedFrom = 0) =>
    new Sampler({ temperature: 0, ...params }, row.length).sample(
      Float32Array.from(row),
      tokens,
      generatedFrom,
    );

  it("adds the bias of a token", () => {
    expect(greedy({ logitBias: { 2: 5 } }, [3, 2, 0])).toBe(2);
    expect(greedy({ logitBias: { 0: -100 } }, [3, 2, 0])).toBe(1);
  });

  it("divides positive and multiplies negative logits of repeated tokens, prompt included", () => {
    expect(greedy({ repeatPenalty: 2 }, [3, 2, 0], [0], 1)).toBe(1);
    expect(greedy({ repeatPenalty: 2 }, [-3, -5, -9], [0], 1)).toBe(1);
  });

  it("counts presence once and frequency per occurrence, only among generated tokens", () => {
    expect(greedy({ presencePenalty: 1.5 }, [3, 2, 0], [0, 0, 0], 0)).toBe(1);
    expect(greedy({ presencePenalty: 0.9 }, [3, 2, 0], [0, 0, 0], 0)).toBe(0);
    expect(greedy({ frequencyPenalty: 0.4 }, [3, 2, 0], [0, 0, 0], 0)).toBe(1);
    expect(greedy({ frequencyPenalty: 0.4 }, [3, 2, 0], [0, 0, 0], 1)).toBe(0);
    expect(greedy({ presencePenalty: 2, frequencyPenalty: 2 }, [3, 2, 0], [0, 0, 0], 3)).toBe(0);
  });

  it("forgets what lies before the window", () => {
    const tokens = [0, 1, 2, 2, 2];
    expect(greedy({ repeatPenalty: 9, penaltyWindowTokens: 3 }, [5, 4, 3], tokens)).toBe(0);
    expect(greedy({ repeatPenalty: 9, penaltyWindowTokens: 0 }, [5, 4, 3], tokens)).toBe(0);
    expect(greedy({ repeatPenalty: 9, penaltyWindowTokens: 4 }, [4, 5, 3], tokens)).toBe(0);
  });

  it("leaves the caller's logits alone", () => {
    const row = Float32Array.of(3, 2, 1);
    new Sampler({ temperature: 0, repeatPenalty: 2, logitBias: { 1: 9 } }, 3).sample(row, [0], 0);
    expect([...row]).toEqual([3, 2, 1]);
  });
});

describe("refusals", () => {
  it.each([
    ["temperature", -1],
    ["temperature", Number.NaN],
    ["temperature", Number.POSITIVE_INFINITY],
    ["topK", -1],
    ["topK", 1.5],
    ["topP", 1.01],
    ["minP", -0.1],
    ["repeatPenalty", 0],
    ["presencePenalty", 3],
    ["frequencyPenalty", Number.NEGATIVE_INFINITY],
    ["penaltyWindowTokens", -5],
    ["seed", -1],
    ["seed", 0.5],
  ])("names a bad %s of %s", (name, value) => {
    expect(() => new Sampler({ [name]: value }, 10)).toThrow(new RegExp(`^${name}: expected`));
  });

  it("names an unknown parameter and bad biases", () => {
    expect(() => new Sampler({ top_p: 1 } as never, 10)).toThrow(/unknown sampling parameter top_p/);
    expect(() => new Sampler({ logitBias: { 10: 1 } }, 10)).toThrow(/token ids in 0\.\.9, got 10/);
    expect(() => new Sampler({ logitBias: { 1: 101 } }, 10)).toThrow(/-100\.\.100, got 101/);
  });

  it.each([0, 1])("throws on NaN, +Infinity and hopeless rows at temperature %s", (temperature) => {
    const sample = (row: number[]) => new Sampler({ temperature }, row.length).sample(Float32Array.from(row));
    expect(() => sample([Number.NaN, 1, 2])).toThrow(/token 0 is NaN/);
    expect(() => sample([3, Number.NaN, 2])).toThrow(/token 1 is NaN/);
    expect(() => sample([3, Number.POSITIVE_INFINITY])).toThrow(/\+Infinity/);
    expect(() => sample([Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY])).toThrow(/no token/);
    expect(sample([Number.NEGATIVE_INFINITY, 0])).toBe(1);
  });

  it("refuses a row of the wrong length", () => {
    expect(() => new Sampler({}, 3).sample(new Float32Array(4))).toThrow(/expected 3 logits, got 4/);
  });
});

describe("speed", () => {
  it("grows with the vocabulary up to 129,280 tokens", () => {
    const random = new Random(5);
    const row = Float32Array.from({ length: 129_280 }, () => random.nextFloat() * 20 - 10);
    row[5] = 18;
    expect(argmax(row)).toBe(5);
    expectLinear(row.length, (length) => {
      const sampler = new Sampler({ topP: 0.95, minP: 0.05 }, length);
      for (let i = 0; i < 20; i++) sampler.sample(row.subarray(0, length));
    });
  });
});

describe("a mask", () => {
  const mask = Uint32Array.of(0b1010_0000, 0, 1 << 5); // tokens 5, 7 and 69
  const logits = Float32Array.from({ length: 100 }, (_, id) => (id === 3 ? 50 : id / 100));

  it("leaves only its tokens, with the likelihoods that they had among themselves", () => {
    const probabilities = softmax([0.05, 0.07, 0.69]);
    for (const params of [{}, { topK: 40 }, { topP: 0.999 }, { minP: 0.01 }]) {
      const sampler = new Sampler({ ...PLAIN, ...params }, 100);
      const counts = [0, 0, 0];
      for (let draw = 0; draw < 3000; draw++)
        counts[[5, 7, 69].indexOf(sampler.sample(logits, [], 0, mask))]++;
      expect(chiSquare(counts, probabilities)).toBeLessThan(16);
    }
    const best = new Sampler({ temperature: 0, logitBias: { 7: 1 } }, 100);
    expect(best.sample(logits, [], 0, mask)).toBe(7);
    expect(best.sample(logits)).toBe(3);
  });

  it("does not hide damaged logits", () => {
    const sampler = new Sampler(PLAIN, 100);
    const damaged = logits.slice();
    damaged[90] = Number.NaN;
    expect(() => sampler.sample(damaged, [], 0, mask)).toThrow(/token 90 is NaN/);
    expect(() => sampler.sample(logits, [], 0, new Uint32Array(4))).toThrow(/no token can be chosen/);
  });
});
