// What every search needs of a 256-value block before it starts: its values in units of the largest magnitude and the
// weight of each value's error.
import { floatToHalf } from "./half.ts";

/** Below this magnitude a block is stored as zeros: no half scale reaches it. */
const SMALLEST_MAGNITUDE = 1e-12;
const LARGEST_HALF = 65504;
/** Least share of the block's mean importance: an input column that was never active still decides ties. */
const LEAST_IMPORTANCE = 1e-4;

/** A block ready for its search. */
export interface WeightedBlock {
  /** [count] values in units of `unit`: magnitudes up to 1. */
  x: Float64Array;
  /** [count] positive weights of the squared errors; all zero only for a block of zeros. */
  w: Float64Array;
  unit: number;
}

/**
 * Normalises `count` values at `offset`. The weight of a value is importance · √(σ² + x²), where σ² is `spread` times
 * the block's mean square and importance (indexed from `importanceOffset`) is relative to the block's mean;
 * undefined or all zero counts as 1.
 */
export function weighBlock(
  source: Float32Array,
  offset: number,
  count: number,
  importance: Float32Array | undefined,
  importanceOffset: number,
  spread: number,
): WeightedBlock {
  let largest = 0;
  for (let i = 0; i < count; i++) largest = Math.max(largest, Math.abs(source[offset + i]));
  const x = new Float64Array(count);
  const w = new Float64Array(count);
  if (largest < SMALLEST_MAGNITUDE) return { x, w, unit: 1 };
  let squares = 0;
  let importanceSum = 0;
  for (let i = 0; i < count; i++) {
    x[i] = source[offset + i] / largest;
    squares += x[i] * x[i];
    importanceSum += importance?.[importanceOffset + i] ?? 0;
  }
  const variance = (spread * squares) / count;
  for (let i = 0; i < count; i++) {
    const relative =
      importance !== undefined && importanceSum > 0
        ? Math.max((importance[importanceOffset + i] * count) / importanceSum, LEAST_IMPORTANCE)
        : 1;
    w[i] = relative * Math.sqrt(variance + x[i] * x[i]);
  }
  return { x, w, unit: largest };
}

/** Bits of the half nearest to a scale: at least `leastBits`, never infinite; 0 for a scale that is not positive. */
export function scaleToHalf(value: number, leastBits = 1): number {
  if (!(value > 0)) return 0;
  return Math.max(leastBits, floatToHalf(Math.min(value, LARGEST_HALF)));
}
