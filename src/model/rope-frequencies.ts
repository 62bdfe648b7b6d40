// The rotary frequencies of a model: plain for sliding-only layers, YaRN-stretched for compressed ones. One place,
// so that every backend turns by the same angles.
import type { RopeSpec } from "./model-spec.ts";

/**
 * Radians per position for each of the `dims/2` pairs, rounded to float32 as the original model stores them.
 * `compressed` selects the base and the YaRN stretch of layers with a compress ratio. Backends form the angle as
 * float32(position * frequency): rounding differently drifts from the original at long context.
 */
export function ropeFrequencies(rope: RopeSpec, compressed: boolean): Float32Array {
  const base = compressed ? rope.compressFreqBase : rope.freqBase;
  const frequencies = new Float32Array(rope.dims / 2);
  const [low, high] = compressed ? yarnRange(rope, base) : [0, 0];
  for (let pair = 0; pair < frequencies.length; pair++) {
    const plain = base ** (-(2 * pair) / rope.dims);
    if (!compressed) {
      frequencies[pair] = plain;
      continue;
    }
    // 1 below `low` (fast pairs keep their frequency), 0 above `high` (slow pairs are stretched in full).
    const keep = 1 - Math.min(1, Math.max(0, (pair - low) / (high - low)));
    frequencies[pair] = (plain / rope.yarnFactor) * (1 - keep) + plain * keep;
  }
  return frequencies;
}

/** The pairs between which YaRN blends: those that turn betaFast and betaSlow times in the original context. */
function yarnRange(rope: RopeSpec, base: number): [number, number] {
  const pairOf = (turns: number) =>
    (rope.dims * Math.log(rope.yarnOriginalContext / (turns * 2 * Math.PI))) / (2 * Math.log(base));
  const low = Math.max(0, Math.floor(pairOf(rope.yarnBetaFast)));
  const high = Math.min(rope.dims - 1, Math.ceil(pairOf(rope.yarnBetaSlow)));
  return high > low ? [low, high] : [low, low + 0.001];
}
