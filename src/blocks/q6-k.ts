// Q6_K: 256 values in 210 bytes: 128 bytes of low nibbles, 64 bytes of high bit pairs, sixteen signed 8-bit scales,
// half d. x = d·scale·(q − 32). Each half of 128 values has its own 64 low and 32 high bytes. Read only.
import type { BlockFormat } from "./block-format.ts";
import { readHalf } from "./half.ts";

const VALUES = 256;
const BYTES = 210;

/** 6-bit blocks with 8-bit scales. */
export const Q6_K: BlockFormat = {
  type: "Q6_K",
  decode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const at = sourceOffset + block * BYTES;
      const d = readHalf(source, at + 208);
      for (let i = 0; i < VALUES; i++) {
        const half = i >> 7;
        const quarter = (i >> 5) & 3; // which 32 values of the half
        const low = source[at + 64 * half + (i % 64)] >> (quarter < 2 ? 0 : 4);
        const high = source[at + 128 + 32 * half + (i % 32)] >> (2 * quarter);
        const scale = (source[at + 192 + (i >> 4)] << 24) >> 24;
        const q = ((low & 15) | ((high & 3) << 4)) - 32;
        target[targetOffset + block * VALUES + i] = Math.fround(d * scale) * q;
      }
    }
  },
};
