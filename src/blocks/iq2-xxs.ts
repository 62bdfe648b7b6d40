// IQ2_XXS: 256 values in 66 bytes: half d, then per 32 values two u32: four grid indices (a byte for each 8 values),
// and four 7-bit sign indices with a 4-bit scale s on top. x = d·(0.5 + s)·0.25·grid·sign; the sign of every eighth
// value makes the number of minuses even.
import type { BlockFormat } from "./block-format.ts";
import { weighBlock } from "./block-weights.ts";
import { readHalf } from "./half.ts";
import { IQ2_XXS_GRID } from "./iq2-xxs-grid.ts";
import { type LatticeBlock, searchLattice } from "./lattice-search.ts";
import { signBits } from "./lattice-signs.ts";

const VALUES = 256;
const BYTES = 66;
/** How much of the block's mean square is added to x² in the weights. */
const SPREAD = 1;

/** 2-bit lattice blocks. */
export const IQ2_XXS: BlockFormat = {
  type: "IQ2_XXS",
  decode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const at = sourceOffset + block * BYTES;
      const d = readHalf(source, at);
      for (let part = 0; part < 8; part++) {
        const from = at + 2 + 8 * part;
        const high =
          source[from + 4] | (source[from + 5] << 8) | (source[from + 6] << 16) | (source[from + 7] << 24);
        const scale = Math.fround(d * (0.5 + (high >>> 28)) * 0.25);
        for (let group = 0; group < 4; group++) {
          const grid = source[from + group] * 8;
          const signs = signBits((high >>> (7 * group)) & 127);
          const to = targetOffset + block * VALUES + 32 * part + 8 * group;
          for (let i = 0; i < 8; i++) {
            target[to + i] = scale * ((signs >> i) & 1 ? -IQ2_XXS_GRID[grid + i] : IQ2_XXS_GRID[grid + i]);
          }
        }
      }
    }
  },
  encode(source, sourceOffset, target, targetOffset, valueCount, importance) {
    for (let at = 0; at < valueCount; at += VALUES) {
      const block = weighBlock(source, sourceOffset + at, VALUES, importance, at, SPREAD);
      pack(searchLattice(block), target, targetOffset + (at / VALUES) * BYTES);
    }
  },
};

function pack({ d, levels, points, signs }: LatticeBlock, target: Uint8Array, at: number): void {
  target.fill(0, at, at + BYTES);
  if (d === 0) return;
  const view = new DataView(target.buffer, target.byteOffset + at, BYTES);
  view.setUint16(0, d, true);
  for (let part = 0; part < 8; part++) {
    let high = levels[part] << 28;
    for (let group = 0; group < 4; group++) {
      target[at + 2 + 8 * part + group] = points[4 * part + group];
      high |= (signs[4 * part + group] & 127) << (7 * group);
    }
    view.setInt32(2 + 8 * part + 4, high, true);
  }
}
