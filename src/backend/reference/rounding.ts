// The rounding that the original model was trained with: keys/values through FP8, the indexer through a Hadamard
// rotation and FP4. Off by default: comparisons with other implementations and vectors are made without it.
import { floatToHalf, halfToFloat } from "../../blocks/half.ts";
import { UnsupportedModelError } from "../../core/errors.ts";
import type { ModelSpec } from "../../model/model-spec.ts";

/** "off", "official": as the original inference code rounds, or "float16": as the CUDA backend keeps its rows. */
export type QatRounding = "off" | "official" | "float16";

/** Rounds rows in place; the rows are normed and rotated already. */
export interface Rounding {
  /** Window rows and compressed entries, [rows, headDim]. */
  keyValueRows(rows: Float32Array, headDim: number): void;
  /** Indexer entries, [rows, indexerHeadDim]. */
  indexerEntries(rows: Float32Array, headDim: number): void;
  /** Indexer queries, [rows, indexerHeadDim]. */
  indexerQueries(rows: Float32Array, headDim: number): void;
}

/** Values that share one FP8 scale. */
const FP8_BLOCK = 64;
/** Largest e4m3 value. */
const FP8_MAX = 448;
/** Below this the FP8 scale stops shrinking. */
const FP8_MIN_AMAX = 1e-4;
/** Values that share one FP4 scale. */
const FP4_BLOCK = 32;
/** Largest e2m1 value. */
const FP4_MAX = 6;
/** All e2m1 magnitudes; a tie goes to the one with an even index (even mantissa). */
const FP4_VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

/** The rounding of a mode. Throws `unsupported-model` when the model's indexer width is no power of two. */
export function createRounding(mode: QatRounding, spec: ModelSpec): Rounding {
  const nothing = () => {};
  if (mode === "off") return { keyValueRows: nothing, indexerEntries: nothing, indexerQueries: nothing };
  if (mode === "float16") {
    return { keyValueRows: roundHalves, indexerEntries: roundHalves, indexerQueries: nothing };
  }
  if (!Number.isInteger(Math.log2(spec.indexerHeadDim))) {
    throw new UnsupportedModelError(
      `official rounding needs an indexer width that is a power of two, found ${spec.indexerHeadDim}`,
    );
  }
  const indexerRows = (rows: Float32Array, headDim: number) => {
    for (let row = 0; row < rows.length; row += headDim) {
      hadamard(rows.subarray(row, row + headDim));
      roundFp4(rows.subarray(row, row + headDim));
    }
  };
  return {
    keyValueRows: (rows, headDim) => roundKeyValues(rows, headDim, headDim - spec.rope.dims),
    indexerEntries: indexerRows,
    indexerQueries: indexerRows,
  };
}

function roundHalves(rows: Float32Array): void {
  for (let i = 0; i < rows.length; i++) rows[i] = halfToFloat(floatToHalf(rows[i]));
}

/** Plain dims to FP8 with a power-of-two scale per block, rotated dims to bfloat16. */
function roundKeyValues(rows: Float32Array, headDim: number, plainDims: number): void {
  for (let row = 0; row < rows.length; row += headDim) {
    for (let start = 0; start < plainDims; start += FP8_BLOCK) {
      const block = rows.subarray(row + start, row + Math.min(start + FP8_BLOCK, plainDims));
      const scale = 2 ** Math.ceil(Math.log2(Math.max(largest(block), FP8_MIN_AMAX) / FP8_MAX));
      for (let i = 0; i < block.length; i++) block[i] = roundE4m3(block[i] / scale) * scale;
    }
    for (let i = row + plainDims; i < row + headDim; i++) rows[i] = roundBfloat16(rows[i]);
  }
}

function roundFp4(values: Float32Array): void {
  for (let start = 0; start < values.length; start += FP4_BLOCK) {
    const block = values.subarray(start, start + FP4_BLOCK);
    const amax = largest(block);
    if (amax === 0) continue;
    const scale = 2 ** Math.ceil(Math.log2(amax / FP4_MAX));
    for (let i = 0; i < block.length; i++) block[i] = roundE2m1(block[i] / scale) * scale;
  }
}

/** Nearest e4m3 value (3 mantissa bits, smallest normal 2^-6), ties to even, saturating. */
export function roundE4m3(value: number): number {
  const magnitude = Math.min(Math.abs(value), FP8_MAX);
  const exponent = Math.max(-6, Math.floor(Math.log2(magnitude || Number.MIN_VALUE)));
  const step = 2 ** (exponent - 3);
  return Math.sign(value) * Math.min(FP8_MAX, roundHalfEven(magnitude / step) * step);
}

/** Nearest e2m1 value, ties to even, saturating. */
export function roundE2m1(value: number): number {
  const magnitude = Math.abs(value);
  let best = 0;
  for (let index = 1; index < FP4_VALUES.length; index++) {
    const gain = Math.abs(FP4_VALUES[best] - magnitude) - Math.abs(FP4_VALUES[index] - magnitude);
    if (gain > 0 || (gain === 0 && index % 2 === 0)) best = index;
  }
  return Math.sign(value) * FP4_VALUES[best];
}

/** Walsh-Hadamard transform in place, scaled to keep lengths. */
export function hadamard(values: Float32Array): void {
  for (let half = 1; half < values.length; half *= 2) {
    for (let start = 0; start < values.length; start += 2 * half) {
      for (let i = start; i < start + half; i++) {
        const a = values[i];
        const b = values[i + half];
        values[i] = a + b;
        values[i + half] = a - b;
      }
    }
  }
  const scale = 1 / Math.sqrt(values.length);
  for (let i = 0; i < values.length; i++) values[i] *= scale;
}

function roundHalfEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  if (rest !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}

const floatView = new Float32Array(1);
const bitsView = new Uint32Array(floatView.buffer);

function roundBfloat16(value: number): number {
  floatView[0] = value;
  bitsView[0] = (bitsView[0] + 0x7fff + ((bitsView[0] >>> 16) & 1)) & 0xffff0000;
  return floatView[0];
}

function largest(values: Float32Array): number {
  let max = 0;
  for (const value of values) max = Math.max(max, Math.abs(value));
  return max;
}
