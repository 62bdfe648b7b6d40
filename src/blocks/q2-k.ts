// Q2_K: 256 values in 84 bytes: 16 scale bytes (low nibble scale, high nibble min, one per 16 values), 64 bytes of
// 2-bit quants, half d, half dmin. x = d·scale·q − dmin·min.
import type { BlockFormat } from "./block-format.ts";
import { readHalf } from "./half.ts";

const VALUES = 256;
const BYTES = 84;

/** 2-bit blocks with 4-bit scales and mins. */
export const Q2_K: BlockFormat = {
  type: "Q2_K",
  decode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const at = sourceOffset + block * BYTES;
      const d = readHalf(source, at + 80);
      const dmin = readHalf(source, at + 82);
      for (let i = 0; i < VALUES; i++) {
        const within = i % 128;
        const byte = source[at + 16 + 32 * Math.floor(i / 128) + (within % 32)];
        const q = (byte >> (2 * Math.floor(within / 32))) & 3;
        const scales = source[at + (i >> 4)];
        target[targetOffset + block * VALUES + i] =
          Math.fround(d * (scales & 15)) * q - Math.fround(dmin * (scales >> 4));
      }
    }
  },
};
