// IQ4_XS: 256 values in 136 bytes: half d, u16 high bit pairs and four bytes of low nibbles of eight 6-bit scales,
// 128 bytes of codes. Per 32 values, byte j holds value j low and value j + 16 high.
// x = d·(scale − 32)·level[code]. Read only.
import type { BlockFormat } from "./block-format.ts";
import { readHalf } from "./half.ts";

const VALUES = 256;
const BYTES = 136;

/** Values of the sixteen codes: denser around zero. */
const LEVELS = Int8Array.of(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);

/** 4-bit blocks with non-uniform levels. */
export const IQ4_XS: BlockFormat = {
  type: "IQ4_XS",
  decode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const at = sourceOffset + block * BYTES;
      const d = readHalf(source, at);
      const scalesHigh = source[at + 2] | (source[at + 3] << 8);
      for (let part = 0; part < 8; part++) {
        const low = (source[at + 4 + (part >> 1)] >> (4 * (part & 1))) & 15;
        const scale = Math.fround(d * ((low | (((scalesHigh >> (2 * part)) & 3) << 4)) - 32));
        const to = targetOffset + block * VALUES + 32 * part;
        for (let j = 0; j < 16; j++) {
          const byte = source[at + 8 + 16 * part + j];
          target[to + j] = scale * LEVELS[byte & 15];
          target[to + j + 16] = scale * LEVELS[byte >> 4];
        }
      }
    }
  },
};
