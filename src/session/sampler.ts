// Chooses the next token from a row of logits. Knows nothing of text, sessions or backends.
//
// Order: logit bias, penalties (repetition, then presence and frequency), then with temperature 0 the argmax;
// otherwise temperature, top-k, top-p, min-p, one draw. Each filter sees the distribution renormalised over what
// the filter before it kept, as in the Hugging Face library. All three filters keep a prefix of the tokens
// sorted by likelihood (ties: lowest id first), and at least the likeliest.
import { Ds4Error } from "../core/errors.ts";
import { Random } from "../core/random.ts";
import { resolveSampling, type SamplingParams } from "./sampling-params.ts";

/**
 * Likelihoods are first counted in buckets of 1/16 nat, so that only tokens that can survive are sorted:
 * a full sort of 129,280 tokens per step would cost more than the arithmetic. The last bucket takes all
 * below 32 nats.
 */
const BUCKET_COUNT = 512;
const BUCKETS_PER_NAT = 16;

/** Samples with fixed parameters; keeps its random state and scratch between calls. */
export class Sampler {
  readonly params: Readonly<SamplingParams>;
  readonly #vocabSize: number;
  readonly #random: Random;
  readonly #bias: readonly [id: number, value: number][];
  #adjusted: Float32Array | undefined;
  #weights: Float64Array | undefined;
  readonly #bucketCounts = new Int32Array(BUCKET_COUNT);
  readonly #bucketMass = new Float64Array(BUCKET_COUNT);

  /** Throws `request` on a parameter out of range. */
  constructor(params: Partial<SamplingParams>, vocabSize: number) {
    this.params = resolveSampling(params, vocabSize);
    this.#vocabSize = vocabSize;
    this.#random = new Random(this.params.seed);
    this.#bias = Object.entries(this.params.logitBias).map(([id, value]) => [Number(id), value]);
  }

  /**
   * The next token's id. `logits` [vocabSize] is only read. `tokens` is the timeline so far; those from
   * `generatedFrom` on were generated (presence and frequency count only these, repetition counts all).
   * Uses one random number, none at temperature 0. `mask` (one bit per id, lowest first) is what may be chosen at all;
   * default everything. Throws `session` when the logits hold NaN or +Infinity, or no token is possible.
   */
  sample(
    logits: Float32Array,
    tokens: ArrayLike<number> = [],
    generatedFrom = tokens.length,
    mask?: Uint32Array,
  ): number {
    if (logits.length !== this.#vocabSize) {
      throw new Ds4Error("session", `sampler: expected ${this.#vocabSize} logits, got ${logits.length}`);
    }
    const adjusted = this.#masked(this.#adjust(logits, tokens, generatedFrom), mask);
    const best = argmax(adjusted);
    if (this.params.temperature === 0) return best;
    const { topK, topP, minP } = this.params;
    const keepsAll = (topK === 0 || topK >= this.#vocabSize) && topP >= 1 && minP === 0;
    return keepsAll
      ? this.#drawFromAll(adjusted, adjusted[best])
      : this.#drawFiltered(adjusted, adjusted[best]);
  }

  #adjust(logits: Float32Array, tokens: ArrayLike<number>, generatedFrom: number): Float32Array {
    const { repeatPenalty, presencePenalty, frequencyPenalty, penaltyWindowTokens } = this.params;
    const penalised = repeatPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
    if (!penalised && this.#bias.length === 0) return logits;
    this.#adjusted ??= new Float32Array(this.#vocabSize);
    const out = this.#adjusted;
    out.set(logits);
    for (const [id, value] of this.#bias) out[id] += value;
    if (!penalised) return out;
    const start = penaltyWindowTokens === 0 ? 0 : Math.max(0, tokens.length - penaltyWindowTokens);
    const generatedCounts = new Map<number, number>();
    for (let i = start; i < tokens.length; i++) {
      const seen = generatedCounts.get(tokens[i]) ?? 0;
      generatedCounts.set(tokens[i], i >= generatedFrom ? seen + 1 : seen);
    }
    for (const [id, count] of generatedCounts) {
      const value = out[id] > 0 ? out[id] / repeatPenalty : out[id] * repeatPenalty;
      out[id] = count === 0 ? value : value - presencePenalty - frequencyPenalty * count;
    }
    return out;
  }

  /** Rules out what `mask` leaves out. Damaged values stay, so that they are still found. */
  #masked(logits: Float32Array, mask: Uint32Array | undefined): Float32Array {
    if (mask === undefined) return logits;
    this.#adjusted ??= new Float32Array(this.#vocabSize);
    const out = this.#adjusted;
    for (let id = 0; id < logits.length; id++) {
      const value = logits[id];
      const isAllowed = ((mask[id >> 5] >>> (id & 31)) & 1) === 1;
      out[id] = isAllowed || !(value < Number.POSITIVE_INFINITY) ? value : Number.NEGATIVE_INFINITY;
    }
    return out;
  }

  #drawFromAll(logits: Float32Array, max: number): number {
    this.#weights ??= new Float64Array(this.#vocabSize);
    const weights = this.#weights;
    const scale = 1 / this.params.temperature;
    let total = 0;
    for (let id = 0; id < logits.length; id++) {
      const weight = Math.exp((logits[id] - max) * scale);
      weights[id] = weight;
      total += weight;
    }
    return walk(weights, weights.length, this.#random.nextFloat() * total);
  }

  #drawFiltered(logits: Float32Array, max: number): number {
    const { temperature, minP } = this.params;
    const scale = 1 / temperature;
    const { cut, total } = this.#findCut(logits, max, scale);
    const ids: number[] = [];
    for (let id = 0; id < logits.length; id++) {
      if (logits[id] === Number.NEGATIVE_INFINITY) continue;
      if (bucketOf((max - logits[id]) * scale) <= cut) ids.push(id);
    }
    ids.sort((a, b) => logits[b] - logits[a] || a - b);
    const topK = this.params.topK === 0 ? ids.length : Math.min(this.params.topK, ids.length);
    const weights = new Float64Array(topK);
    let topKMass = 0;
    for (let i = 0; i < topK; i++) {
      weights[i] = Math.exp((logits[ids[i]] - max) * scale);
      topKMass += weights[i];
    }
    // Without top-k the share is of the whole vocabulary, with it of the k tokens it kept.
    const limit = this.params.topP * (this.params.topK === 0 ? total : topKMass);
    let kept = 0;
    let mass = 0;
    while (kept < topK) {
      if (kept > 0 && ((this.params.topP < 1 && mass >= limit) || weights[kept] < minP)) break;
      mass += weights[kept++];
    }
    return ids[walk(weights, kept, this.#random.nextFloat() * mass)];
  }

  /** The last bucket that can hold a surviving token, and (only if top-p needs it) the total mass. */
  #findCut(logits: Float32Array, max: number, scale: number): { cut: number; total: number } {
    const { topK, topP, minP } = this.params;
    const counts = this.#bucketCounts.fill(0);
    const mass = this.#bucketMass.fill(0);
    let total = 0;
    for (let id = 0; id < logits.length; id++) {
      const below = (max - logits[id]) * scale;
      const bucket = bucketOf(below);
      counts[bucket]++;
      if (topP < 1) {
        const weight = Math.exp(-below);
        mass[bucket] += weight;
        total += weight;
      }
    }
    let cut = minP > 0 ? bucketOf(-Math.log(minP)) : BUCKET_COUNT - 1;
    let count = 0;
    let sum = 0;
    for (let bucket = 0; bucket < cut; bucket++) {
      count += counts[bucket];
      sum += mass[bucket];
      if ((topK > 0 && count >= topK) || (topP < 1 && sum >= topP * total)) cut = bucket;
    }
    return { cut, total };
  }
}

function bucketOf(natsBelowMax: number): number {
  const bucket = natsBelowMax * BUCKETS_PER_NAT;
  return bucket >= BUCKET_COUNT - 1 ? BUCKET_COUNT - 1 : bucket | 0;
}

function walk(weights: Float64Array, count: number, target: number): number {
  let sum = 0;
  let last = 0;
  for (let i = 0; i < count; i++) {
    if (weights[i] === 0) continue;
    sum += weights[i];
    last = i;
    if (target < sum) return i;
  }
  return last; // rounding left the target at the very end
}

/**
 * The id of the largest logit, the lowest on a tie. Throws `session` on NaN, +Infinity or when every logit is
 * -Infinity: such rows come from a broken kernel or damaged weights, and sampling them would hide it.
 */
export function argmax(logits: Float32Array): number {
  let best = -1;
  let max = Number.NEGATIVE_INFINITY;
  for (let id = 0; id < logits.length; id++) {
    const value = logits[id];
    if (value > max) {
      max = value;
      best = id;
    } else if (Number.isNaN(value)) {
      throw new Ds4Error("session", `the logit of token ${id} is NaN: the weights or a kernel are damaged`);
    }
  }
  if (best === -1) throw new Ds4Error("session", "every logit is -Infinity: no token can be chosen");
  if (max === Number.POSITIVE_INFINITY) {
    throw new Ds4Error(
      "session",
      `the logit of token ${best} is +Infinity: the weights or a kernel are damaged`,
    );
  }
  return best;
}
