// The 8-bit and 4-bit floats of DeepSeek's checkpoints: FP8 e4m3 with a power-of-two scale per 128 x 128 tile, FP4
// e2m1 (two a byte, even column low) with one per 32 columns, and the repacking of FP4 into MXFP4 blocks.
import { E2M1_VALUES, e8m0ToFloat } from "../blocks/mxfp4.ts";

/** Rows and columns of a tile that shares one FP8 scale. */
export const FP8_TILE = 128;
/** Columns that share one FP4 scale: also an MXFP4 block. */
export const FP4_GROUP = 32;
const MXFP4_BYTES = 17;

/** All e4m3 values by code: bias 7, no infinities, 0x7f and 0xff are NaN. */
export const E4M3_VALUES: Float32Array = Float32Array.from({ length: 256 }, (_, code) => {
  const sign = code & 0x80 ? -1 : 1;
  const exponent = (code >> 3) & 15;
  const fraction = code & 7;
  if (exponent === 15 && fraction === 7) return Number.NaN;
  return sign * (exponent === 0 ? fraction * 2 ** -9 : (1 + fraction / 8) * 2 ** (exponent - 7));
});

/** All e8m0 scales by code. */
const SCALES = Float64Array.from({ length: 256 }, (_, code) => e8m0ToFloat(code));

/** The two values of each byte of FP4 codes, at 2 * byte. */
const FP4_PAIRS = Float64Array.from({ length: 512 }, (_, i) => E2M1_VALUES[i & 1 ? i >> 5 : (i >> 1) & 15]);

/**
 * Decodes whole rows [rows, columns] of FP8 that start at row `firstRow` of the matrix. `scales` holds the rows of
 * tiles from the one that `firstRow` lies in, each ceil(columns / 128) long.
 */
export function decodeFp8Rows(
  codes: Uint8Array,
  scales: Uint8Array,
  firstRow: number,
  rows: number,
  columns: number,
): Float32Array {
  const values = new Float32Array(rows * columns);
  const tilesPerRow = Math.ceil(columns / FP8_TILE);
  const firstTileRow = Math.floor(firstRow / FP8_TILE);
  for (let row = 0; row < rows; row++) {
    const tileRow = Math.floor((firstRow + row) / FP8_TILE) - firstTileRow;
    for (let tile = 0; tile < tilesPerRow; tile++) {
      const scale = SCALES[scales[tileRow * tilesPerRow + tile]];
      const end = row * columns + Math.min(columns, (tile + 1) * FP8_TILE);
      for (let i = row * columns + tile * FP8_TILE; i < end; i++) values[i] = E4M3_VALUES[codes[i]] * scale;
    }
  }
  return values;
}

/** Decodes FP4: `codes` holds two values a byte, `scales` one byte per 32 values. Whole groups only. */
export function decodeFp4(codes: Uint8Array, scales: Uint8Array): Float32Array {
  const values = new Float32Array(codes.length * 2);
  const pairs = FP4_PAIRS;
  const groupBytes = FP4_GROUP / 2;
  let to = 0;
  for (let group = 0; group < scales.length; group++) {
    const scale = SCALES[scales[group]];
    const end = (group + 1) * groupBytes;
    for (let i = group * groupBytes; i < end; i++) {
      const pair = 2 * codes[i];
      values[to++] = pairs[pair] * scale;
      values[to++] = pairs[pair + 1] * scale;
    }
  }
  return values;
}

/**
 * FP4 to MXFP4 blocks without decoding: the same codes and scales, regrouped from neighbouring columns in a byte to
 * columns j and j + 16. Whole groups only.
 */
export function repackFp4(codes: Uint8Array, scales: Uint8Array): Uint8Array {
  const blocks = new Uint8Array(scales.length * MXFP4_BYTES);
  const half = FP4_GROUP / 4; // bytes of the first sixteen columns
  for (let group = 0; group < scales.length; group++) {
    const from = group * 2 * half;
    let to = group * MXFP4_BYTES;
    blocks[to++] = scales[group];
    for (let i = from; i < from + half; i++) {
      const first = codes[i];
      const second = codes[i + half];
      blocks[to++] = (first & 15) | ((second & 15) << 4);
      blocks[to++] = (first >> 4) | (second & 0xf0);
    }
  }
  return blocks;
}
