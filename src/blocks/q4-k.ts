// Q4_K: 256 values in 144 bytes: half d, half dmin, 12 bytes of eight 6-bit scales and mins, 128 bytes of nibbles.
// x = d·scale·q − dmin·min.
import type { BlockFormat } from "./block-format.ts";
import { readHalf } from "./half.ts";

const VALUES = 256;
const BYTES = 144;

/** Scale and min of sub-block `j` (0..7) from the 12 packed bytes at `at`. Shared with Q5_K. */
export function unpackScaleMin(source: Uint8Array, at: number, j: number): { scale: number; min: number } {
  if (j < 4) return { scale: source[at + j] & 63, min: source[at + j + 4] & 63 };
  return {
    scale: (source[at + j + 4] & 15) | ((source[at + j - 4] >> 6) << 4),
    min: (source[at + j + 4] >> 4) | ((source[at + j] >> 6) << 4),
  };
}

/** 4-bit blocks with 6-bit scales and mins. */
export const Q4_K: BlockFormat = {
  type: "Q4_K",
  decode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const at = sourceOffset + block * BYTES;
      const d = readHalf(source, at);
      const dmin = readHalf(source, at + 2);
      for (let j = 0; j < 8; j++) {
        const { scale, min } = unpackScaleMin(source, at + 4, j);
        const subScale = Math.fround(d * scale);
        const subMin = Math.fround(dmin * min);
        const quants = at + 16 + 32 * (j >> 1);
        const shift = 4 * (j & 1);
        for (let i = 0; i < 32; i++) {
          const q = (source[quants + i] >> shift) & 15;
          target[targetOffset + block * VALUES + 32 * j + i] = subScale * q - subMin;
        }
      }
    }
  },
};
