// MXFP4: 32 values in 17 bytes: an e8m0 scale and 16 bytes of e2m1 codes; value j is the low nibble of byte j,
// value j + 16 the high nibble. x = code · 2^(e − 127).
import type { BlockFormat } from "./block-format.ts";

const VALUES = 32;
const BYTES = 17;

/** The sixteen e2m1 values by code: bit 3 is the sign. Code 8 is plain zero, as in other readers. */
export const E2M1_VALUES = Float32Array.of(0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6);

/** Midpoints between neighbouring magnitudes; a tie goes to the even code (case 47). */
const MIDPOINTS = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5];

/** 2^(e − 127) as float32; e = 0 is the subnormal 2^-127, e = 255 is NaN. */
export function e8m0ToFloat(e: number): number {
  return e === 255 ? Number.NaN : 2 ** (e - 127);
}

/** Nearest e2m1 code, ties to the even code, magnitudes above 6 saturate. */
export function floatToE2m1(value: number): number {
  const magnitude = Math.abs(value);
  let code = 0;
  while (code < 7 && (magnitude > MIDPOINTS[code] || (magnitude === MIDPOINTS[code] && code % 2 === 1)))
    code++;
  return value < 0 && code > 0 ? code | 8 : code;
}

/** 4-bit floats with one power-of-two scale. */
export const MXFP4: BlockFormat = {
  type: "MXFP4",
  decode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const at = sourceOffset + block * BYTES;
      const to = targetOffset + block * VALUES;
      const scale = e8m0ToFloat(source[at]);
      for (let j = 0; j < 16; j++) {
        const byte = source[at + 1 + j];
        target[to + j] = scale * E2M1_VALUES[byte & 15];
        target[to + j + 16] = scale * E2M1_VALUES[byte >> 4];
      }
    }
  },
  encode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const from = sourceOffset + block * VALUES;
      const at = targetOffset + block * BYTES;
      const e = bestExponent(source, from);
      const inverse = 1 / e8m0ToFloat(e);
      target[at] = e;
      for (let j = 0; j < 16; j++) {
        const low = floatToE2m1(source[from + j] * inverse);
        target[at + 1 + j] = low | (floatToE2m1(source[from + j + 16] * inverse) << 4);
      }
    }
  },
};

/** The scale with the least squared error among the two that can hold the largest magnitude without much clipping. */
function bestExponent(source: Float32Array, from: number): number {
  let largest = 0;
  for (let i = 0; i < VALUES; i++) largest = Math.max(largest, Math.abs(source[from + i]));
  if (largest === 0) return 0;
  const floor = Math.floor(Math.log2(largest)) - 2 + 127; // the OCP rule: the largest binade maps to 4..6
  let best = 0;
  let bestError = Number.POSITIVE_INFINITY;
  for (const candidate of [floor, floor + 1]) {
    const e = Math.min(254, Math.max(0, candidate));
    const scale = e8m0ToFloat(e);
    let error = 0;
    for (let i = 0; i < VALUES; i++) {
      const value = source[from + i];
      error += (value - scale * E2M1_VALUES[floatToE2m1(value / scale)]) ** 2;
    }
    if (error < bestError) {
      best = e;
      bestError = error;
    }
  }
  return best;
}
