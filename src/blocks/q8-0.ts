// Q8_0: 32 values in 34 bytes: half d, 32 signed bytes q; x = d·q.
import type { BlockFormat } from "./block-format.ts";
import { readHalf, writeHalf } from "./half.ts";

const VALUES = 32;
const BYTES = 34;
const LARGEST_HALF = 65504;
const LEAST_NORMAL_FLOAT = 2 ** -126;

/** Round half away from zero, as the format's writers do. */
function roundAway(value: number): number {
  return Math.sign(value) * Math.floor(Math.abs(value) + 0.5);
}

/** 8-bit blocks with one half scale. */
export const Q8_0: BlockFormat = {
  type: "Q8_0",
  decode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const at = sourceOffset + block * BYTES;
      const d = readHalf(source, at);
      for (let i = 0; i < VALUES; i++) {
        target[targetOffset + block * VALUES + i] = d * ((source[at + 2 + i] << 24) >> 24);
      }
    }
  },
  encode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const from = sourceOffset + block * VALUES;
      const at = targetOffset + block * BYTES;
      let largest = 0;
      for (let i = 0; i < VALUES; i++) largest = Math.max(largest, Math.abs(source[from + i]));
      const d = Math.min(Math.fround(largest / 127), LARGEST_HALF);
      // The reciprocal is taken before d is rounded to half, like every other writer of this format.
      const inverse = d >= LEAST_NORMAL_FLOAT ? Math.fround(1 / d) : 0;
      writeHalf(target, at, d);
      for (let i = 0; i < VALUES; i++) {
        const q = roundAway(Math.fround(source[from + i] * inverse));
        target[at + 2 + i] = Math.min(127, Math.max(-127, q)) & 255;
      }
    }
  },
};
