// Q2_K: 256 values in 84 bytes: 16 scale bytes (low nibble scale, high nibble min, one per 16 values), 64 bytes of
// 2-bit quants, half d, half dmin. x = d·scale·q − dmin·min.
import { type AffineShape, searchAffine } from "./affine-search.ts";
import type { BlockFormat } from "./block-format.ts";
import { weighBlock } from "./block-weights.ts";
import { readHalf } from "./half.ts";

const VALUES = 256;
const BYTES = 84;

const SHAPE: AffineShape = {
  subValues: 16,
  maxQuant: 3,
  maxScale: 15,
  // biome-ignore format: a table
  starts: [
    [0, -0.6], [0, -0.3], [0, 0], [0, 0.3], [0, 0.6], [0, 1], [0.06, 0], [0.06, 0.4], [0.06, 0.8], [0.06, 1.3],
    [0.12, 0.4], [0.12, 0.8], [0.12, 1.3], [0.12, 1.8], [0.2, 1], [0.2, 1.5], [0.2, 2],
  ],
};
/** How much of the block's mean square is added to x² in the weights. */
const SPREAD = 1;

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
  encode(source, sourceOffset, target, targetOffset, valueCount, importance) {
    for (let from = 0; from < valueCount; from += VALUES) {
      const block = weighBlock(source, sourceOffset + from, VALUES, importance, from, SPREAD);
      const { d, dmin, s, m, q } = searchAffine(SHAPE, block);
      const at = targetOffset + (from / VALUES) * BYTES;
      target.fill(0, at, at + BYTES);
      for (let j = 0; j < 16; j++) target[at + j] = s[j] | (m[j] << 4);
      for (let i = 0; i < VALUES; i++) {
        const within = i % 128;
        target[at + 16 + 32 * Math.floor(i / 128) + (within % 32)] |= q[i] << (2 * Math.floor(within / 32));
      }
      target.set([d & 255, d >> 8, dmin & 255, dmin >> 8], at + 80);
    }
  },
};
