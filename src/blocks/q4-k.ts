// Q4_K: 256 values in 144 bytes: half d, half dmin, 12 bytes of eight 6-bit scales and mins, 128 bytes of nibbles.
// x = d·scale·q − dmin·min.
import { type AffineBlock, type AffineShape, searchAffine } from "./affine-search.ts";
import type { BlockFormat } from "./block-format.ts";
import { weighBlock } from "./block-weights.ts";
import { readHalf } from "./half.ts";

const VALUES = 256;
const BYTES = 144;

const SHAPE: AffineShape = {
  subValues: 32,
  maxQuant: 15,
  maxScale: 63,
  // biome-ignore format: a table
  starts: [
    [0, -0.8], [0, -0.6], [0, -0.4], [0, -0.2], [0, 0], [0, 0.2], [0, 0.4], [0, 0.6], [0, 0.8], [0, 1.2],
    [0.02, 0.2], [0.02, 0.6], [0.02, 1], [0.04, 1], [0.04, 1.5],
  ],
};
/** How much of the block's mean square is added to x² in the weights. */
const SPREAD = 2;

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
  encode(source, sourceOffset, target, targetOffset, valueCount, importance) {
    for (let at = 0; at < valueCount; at += VALUES) {
      const block = weighBlock(source, sourceOffset + at, VALUES, importance, at, SPREAD);
      pack(searchAffine(SHAPE, block), target, targetOffset + (at / VALUES) * BYTES);
    }
  },
};

function pack({ d, dmin, s, m, q }: AffineBlock, target: Uint8Array, at: number): void {
  target.fill(0, at, at + BYTES);
  target.set([d & 255, d >> 8, dmin & 255, dmin >> 8], at);
  for (let j = 0; j < 8; j++) {
    if (j < 4) {
      target[at + 4 + j] |= s[j];
      target[at + 8 + j] |= m[j];
    } else {
      target[at + 8 + j] = (s[j] & 15) | ((m[j] & 15) << 4);
      target[at + j] |= (s[j] >> 4) << 6;
      target[at + 4 + j] |= (m[j] >> 4) << 6;
    }
    for (let i = 0; i < 32; i++) target[at + 16 + 32 * (j >> 1) + i] |= q[32 * j + i] << (4 * (j & 1));
  }
}
