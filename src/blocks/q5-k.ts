// Q5_K: 256 values in 176 bytes: half d, half dmin, 12 bytes of scales and mins as in Q4_K, 32 bytes of fifth bits,
// 128 bytes of nibbles. x = d·scale·q − dmin·min. Read only.
import type { BlockFormat } from "./block-format.ts";
import { readHalf } from "./half.ts";
import { unpackScaleMin } from "./q4-k.ts";

const VALUES = 256;
const BYTES = 176;

/** 5-bit blocks with 6-bit scales and mins. */
export const Q5_K: BlockFormat = {
  type: "Q5_K",
  decode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const at = sourceOffset + block * BYTES;
      const d = readHalf(source, at);
      const dmin = readHalf(source, at + 2);
      for (let j = 0; j < 8; j++) {
        const { scale, min } = unpackScaleMin(source, at + 4, j);
        const subScale = Math.fround(d * scale);
        const subMin = Math.fround(dmin * min);
        for (let i = 0; i < 32; i++) {
          const low = (source[at + 48 + 32 * (j >> 1) + i] >> (4 * (j & 1))) & 15;
          const high = (source[at + 16 + i] >> j) & 1;
          target[targetOffset + block * VALUES + 32 * j + i] = subScale * (low + 16 * high) - subMin;
        }
      }
    }
  },
};
