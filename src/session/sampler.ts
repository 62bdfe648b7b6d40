// Chooses the next token from a row of logits, or from its candidates where they are enough. Knows nothing of text or
// sessions.
//
// Order: logit bias, penalties (repetition, then presence and frequency), then with temperature 0 the argmax;
// otherwise temperature, top-k, top-p, min-p, one draw. Each filter sees the distribution renormalised over what
// the filter before it kept, as in the Hugging Face library. All three filters keep a prefix of the tokens
// sorted by likelihood (ties: lowest id first), and at least the likeliest.
import { TOP_LOGITS, type TopLogits } from "../backend/backend.ts";
import { Ds4Error } from "../core/errors.ts";
import { largestValues } from "../core/largest-values.ts";
import { Random } from "../core/random.ts";
import { drawCandidate, isAllowed, keepsAll, walk } from "./candidate-draw.ts";
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

  /** What to ask a backend for: candidates, or the row where every logit may change before the choice. */
  get logitsWanted(): "top" | "last" {
    return this.#isPenalised || this.#bias.length > 0 ? "last" : "top";
  }

  /**
   * The next token's id, the same whether `logits` are a row [vocabSize] (only read) or its candidates, whose row is taken
   * when they leave the choice open. `tokens` is the timeline so far; those from
   * `generatedFrom` on were generated (presence and frequency count only these, repetition counts all).
   * Uses one random number, none at temperature 0. `mask` (one bit per id, lowest first) is what may be chosen at all;
   * default everything. Throws `session` when the logits hold NaN or +Infinity, or no token is possible.
   */
  sample(
    logits: Float32Array | TopLogits,
    tokens: ArrayLike<number> = [],
    generatedFrom = tokens.length,
    mask?: Uint32Array,
  ): number {
    let drawn: number | undefined;
    const random = () => {
      drawn ??= this.#random.nextFloat();
      return drawn;
    };
    if (logits instanceof Float32Array) return this.#sampleRow(logits, tokens, generatedFrom, mask, random);
    const isEnough = this.logitsWanted === "top" && Number.isFinite(logits.logits[0]);
    const chosen = isEnough ? drawCandidate(logits, this.params, this.#vocabSize, mask, random) : undefined;
    return chosen ?? this.#sampleRow(logits.row(), tokens, generatedFrom, mask, random);
  }

  #sampleRow(
    logits: Float32Array,
    tokens: ArrayLike<number>,
    generatedFrom: number,
    mask: Uint32Array | undefined,
    random: () => number,
  ): number {
    if (logits.length !== this.#vocabSize) {
      throw new Ds4Error("session", `sampler: expected ${this.#vocabSize} logits, got ${logits.length}`);
    }
    const adjusted = this.#masked(this.#adjust(logits, tokens, generatedFrom), mask);
    const best = argmax(adjusted);
    if (this.params.temperature === 0) return best;
    return keepsAll(this.params, this.#vocabSize)
      ? this.#drawFromAll(adjusted, adjusted[best], random())
      : this.#drawFiltered(adjusted, adjusted[best], random());
  }

  get #isPenalised(): boolean {
    const { repeatPenalty, presencePenalty, frequencyPenalty } = this.params;
    return repeatPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
  }

  #adjust(logits: Float32Array, tokens: ArrayLike<number>, generatedFrom: number): Float32Array {
    const { repeatPenalty, presencePenalty, frequencyPenalty, penaltyWindowTokens } = this.params;
    if (!this.#isPenalised && this.#bias.length === 0) return logits;
    this.#adjusted ??= new Float32Array(this.#vocabSize);
    const out = this.#adjusted;
    out.set(logits);
    for (const [id, value] of this.#bias) out[id] += value;
    if (!this.#isPenalised) return out;
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
      const stays = isAllowed(mask, id) || !(value < Number.POSITIVE_INFINITY);
      out[id] = stays ? value : Number.NEGATIVE_INFINITY;
    }
    return out;
  }

  /** The likeliest come first and in order, so that most draws need candidates only; the others follow by id. */
  #drawFromAll(logits: Float32Array, max: number, share: number): number {
    this.#weights ??= new Float64Array(this.#vocabSize);
    const weights = this.#weights;
    const scale = 1 / this.params.temperature;
    let total = 0;
    for (let id = 0; id < logits.length; id++) {
      const weight = Math.exp((logits[id] - max) * scale);
      weights[id] = weight;
      total += weight;
    }
    let target = share * total;
    const { places } = largestValues(logits, TOP_LOGITS);
    let sum = 0;
    for (const id of places) {
      sum += weights[id];
      if (target < sum && weights[id] > 0) return id;
      weights[id] = 0;
    }
    target -= sum;
    // Rounding may leave the target at the very end, where nothing else has a weight: the likeliest is as good.
    const rest = walk(weights, weights.length, target);
    return weights[rest] > 0 ? rest : places[0];
  }

  #drawFiltered(logits: Float32Array, max: number, share: number): number {
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
    return ids[walk(weights, kept, share * mass)];
  }

  /**
   * The last bucket that can hold a token that matters: a survivor, or with top-k one of the k whose mass top-p takes a share
   * of. And, only if top-p needs it, the total mass.
   */
  #findCut(logits: Float32Array, max: number, scale: number): { cut: number; total: number } {
    const { topK, topP, minP } = this.params;
    const counts = this.#bucketCounts.fill(0);
    const mass = this.#bucketMass.fill(0);
    const sharesTotal = topK === 0 && topP < 1;
    let total = 0;
    for (let id = 0; id < logits.length; id++) {
      const below = (max - logits[id]) * scale;
      const bucket = bucketOf(below);
      counts[bucket]++;
      if (sharesTotal) {
        const weight = Math.exp(-below);
        mass[bucket] += weight;
        total += weight;
      }
    }
    const least = topK > 0 && topP < 1 ? 0 : minP;
    let cut = least > 0 ? bucketOf(1 / BUCKETS_PER_NAT - Math.log(least)) : BUCKET_COUNT - 1;
    let count = 0;
    let sum = 0;
    for (let bucket = 0; bucket < cut; bucket++) {
      count += counts[bucket];
      sum += mass[bucket];
      if ((topK > 0 && count >= topK) || (sharesTotal && sum >= topP * total)) cut = bucket;
    }
    return { cut, total };
  }
}

function bucketOf(natsBelowMax: number): number {
  const bucket = natsBelowMax * BUCKETS_PER_NAT;
  return bucket >= BUCKET_COUNT - 1 ? BUCKET_COUNT - 1 : bucket | 0;
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
