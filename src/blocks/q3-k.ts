// Q3_K: 256 values in 110 bytes: 32 bytes of high bits, 64 bytes of low 2-bit quants, 12 bytes of sixteen 6-bit
// scales, half d. x = d·(scale − 32)·(q − 4 where the high bit is clear). Read only.
import type { BlockFormat } from "./block-format.ts";
import { readHalf } from "./half.ts";

const VALUES = 256;
const BYTES = 110;
const SCALES_AT = 96;

/** Scale (0..63) of sub-block `j`: low nibbles in bytes 0..7, pairs of high bits in bytes 8..11. */
function unpackScale(source: Uint8Array, at: number, j: number): number {
  const low = j < 8 ? source[at + j] & 15 : source[at + j - 8] >> 4;
  return low | (((source[at + 8 + (j % 4)] >> (2 * (j >> 2))) & 3) << 4);
}

/** 3-bit blocks with signed 6-bit scales. */
export const Q3_K: BlockFormat = {
  type: "Q3_K",
  decode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const at = sourceOffset + block * BYTES;
      const d = readHalf(source, at + 108);
      for (let j = 0; j < 16; j++) {
        const scale = Math.fround(d * (unpackScale(source, at + SCALES_AT, j) - 32));
        for (let i = 16 * j; i < 16 * j + 16; i++) {
          const low = (source[at + 32 + 32 * (i >> 7) + (i % 32)] >> (2 * ((i >> 5) & 3))) & 3;
          const high = (source[at + (i % 32)] >> (i >> 5)) & 1;
          target[targetOffset + block * VALUES + i] = scale * (low - (high ? 0 : 4));
        }
      }
    }
  },
};
