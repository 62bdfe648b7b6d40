// Draws from the candidates of a row as `Sampler` draws from the row itself: the same token, or none where they leave open
// which one it is. All filters keep a prefix of the tokens sorted by likelihood, and the candidates are such a prefix.
import type { TopLogits } from "../backend/backend.ts";
import type { SamplingParams } from "./sampling-params.ts";

/** Relative error of exp(`TopLogits.logSumExp`), with room. */
const SUM_ERROR = 2e-6;
/** Relative error of float64 sums of the same weights in different orders, with much room. */
const ORDER_ERROR = 1e-9;

/** The candidates that may be chosen, by likelihood. */
interface Listed {
  ids: Int32Array;
  /** exp of how far each lies below the likeliest, at the temperature. */
  weights: Float64Array;
  count: number;
  /** Logit of the likeliest. */
  max: number;
  /** No token that is not listed weighs more. */
  floorWeight: number;
  /** Every token that has any weight is listed. */
  isWhole: boolean;
}

/** Which tokens a filter setting leaves alone; see `Sampler`. */
export function keepsAll({ topK, topP, minP }: SamplingParams, vocabSize: number): boolean {
  return (topK === 0 || topK >= vocabSize) && topP >= 1 && minP === 0;
}

/**
 * The token that `Sampler.sample` would choose, or undefined when that depends on the rest of the row. `mask`: as there.
 * The first candidate must be finite. Takes its random number from `random` where it needs one.
 */
export function drawCandidate(
  top: TopLogits,
  params: SamplingParams,
  vocabSize: number,
  mask: Uint32Array | undefined,
  random: () => number,
): number | undefined {
  const scale = 1 / params.temperature;
  const listed = listAllowed(top, params.temperature === 0 ? 1 : scale, vocabSize, mask);
  const { ids, weights, count } = listed;
  if (count === 0) return undefined;
  if (params.temperature === 0) return ids[0];
  if (keepsAll(params, vocabSize)) {
    const bounds = totalBounds(top, listed, scale, vocabSize, mask !== undefined);
    if (bounds === undefined) return undefined;
    const share = random();
    const [low, high] = bounds.map((total) => placeOf(weights, count, share * total));
    return low === high && low < count ? ids[low] : undefined;
  }
  const kept = keptCount(top, params, listed, vocabSize, mask !== undefined);
  if (kept === undefined) return undefined;
  return ids[walk(weights, kept, random() * massOf(weights, kept))];
}

/** Whether a token may be chosen; `mask` has one bit per id, lowest first. */
export function isAllowed(mask: Uint32Array, id: number): boolean {
  return ((mask[id >> 5] >>> (id & 31)) & 1) === 1;
}

/** The weight of the first `count` together. */
function massOf(weights: Float64Array, count: number): number {
  let mass = 0;
  for (let i = 0; i < count; i++) mass += weights[i];
  return mass;
}

/** The index at which the running sum of `weights` passes `target`; the last with any weight if rounding left it behind. */
export function walk(weights: Float64Array, count: number, target: number): number {
  const place = placeOf(weights, count, target);
  if (place < count) return place;
  let last = count - 1;
  while (last > 0 && weights[last] === 0) last--;
  return last;
}

/** As `walk`, but `count` when the sum does not pass it. */
function placeOf(weights: Float64Array, count: number, target: number): number {
  let sum = 0;
  for (let i = 0; i < count; i++) {
    if (weights[i] === 0) continue;
    sum += weights[i];
    if (target < sum) return i;
  }
  return count;
}

function listAllowed(
  { ids, logits }: TopLogits,
  scale: number,
  vocabSize: number,
  mask: Uint32Array | undefined,
): Listed {
  const allowed = new Int32Array(ids.length);
  const weights = new Float64Array(ids.length);
  let count = 0;
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < ids.length && logits[i] !== Number.NEGATIVE_INFINITY; i++) {
    const id = ids[i];
    if (mask !== undefined && !isAllowed(mask, id)) continue;
    if (count === 0) max = logits[i];
    weights[count] = Math.exp((logits[i] - max) * scale);
    allowed[count++] = id;
  }
  const floor = logits[logits.length - 1];
  const isWhole = ids.length === vocabSize || floor === Number.NEGATIVE_INFINITY;
  const floorWeight = isWhole ? 0 : Math.exp((floor - max) * scale);
  return { ids: allowed, weights, count, max, floorWeight, isWhole };
}

/** How many tokens the filters keep, if the candidates tell. */
function keptCount(
  top: TopLogits,
  { temperature, topK, topP, minP }: SamplingParams,
  listed: Listed,
  vocabSize: number,
  isMasked: boolean,
): number | undefined {
  const { weights, count, floorWeight, isWhole } = listed;
  const choosesAll = topK === 0;
  // The tokens that top-k keeps may go on behind the list.
  const isCut = isWhole || (!choosesAll && topK <= count);
  const most = choosesAll ? count : Math.min(topK, count);
  const kept = (limit: number): number | undefined => {
    let mass = 0;
    for (let i = 0; i < most; i++) {
      if (i > 0 && (mass >= limit || weights[i] < minP)) return i;
      mass += weights[i];
    }
    return isCut || mass >= limit || floorWeight < minP ? most : undefined;
  };
  if (topP >= 1) return kept(Number.POSITIVE_INFINITY);
  if (!choosesAll) {
    if (!isCut) return undefined; // its tokens' mass is not known
    return kept(topP * massOf(weights, most));
  }
  const bounds = totalBounds(top, listed, 1 / temperature, vocabSize, isMasked);
  if (bounds === undefined) return undefined;
  const [low, high] = bounds.map((total) => kept(topP * total));
  return low === high ? low : undefined;
}

/**
 * Bounds of the weight of all allowed tokens together. What is not listed weighs n tokens' worth of the floor at most, and
 * follows from the row's sum of exp: exactly at temperature 1; at others each weight w becomes w^scale, which is
 * w * w^(scale - 1) with w at most the floor, and by Hölder's inequality at most n^(1 - scale) * (sum of w)^scale in sum.
 */
function totalBounds(
  top: TopLogits,
  { weights, count, max, floorWeight, isWhole }: Listed,
  scale: number,
  vocabSize: number,
  isMasked: boolean,
): readonly [number, number] | undefined {
  const mass = massOf(weights, count);
  if (isWhole) return [mass * (1 - ORDER_ERROR), mass * (1 + ORDER_ERROR)];
  const { logits } = top;
  const all = Math.exp(top.logSumExp() - max);
  if (!Number.isFinite(all)) return undefined; // everything allowed lies far below the likeliest
  const listedSum = logits.reduce((sum, value) => sum + Math.exp(value - max), 0);
  const others = vocabSize - logits.length;
  const floor = Math.exp(logits[logits.length - 1] - max);
  const most = Math.max(0, all * (1 + SUM_ERROR) - listedSum);
  const least = Math.max(0, all * (1 - SUM_ERROR) - listedSum);
  const factor = scale === 1 ? 1 : floor ** (scale - 1);
  let high = scale >= 1 ? most * factor : others ** (1 - scale) * most ** scale;
  high = Math.min(high, others * floorWeight);
  let low = scale > 1 || isMasked || floor === 0 ? 0 : least * factor;
  low = Math.min(low, high);
  return [(mass + low) * (1 - ORDER_ERROR), (mass + high) * (1 + ORDER_ERROR)];
}
