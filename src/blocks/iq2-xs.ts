// IQ2_XS: 256 values in 74 bytes: half d, a u16 for each 8 values (9-bit grid index, 7-bit sign index on top), then
// a 4-bit scale s for each 16 values. x = d·(0.5 + s)·0.25·grid·sign. Read only.
import type { BlockFormat } from "./block-format.ts";
import { readHalf } from "./half.ts";
import { IQ2_XS_GRID } from "./iq2-xs-grid.ts";
import { signBits } from "./lattice-signs.ts";

const VALUES = 256;
const BYTES = 74;

/** 2.3-bit lattice blocks. */
export const IQ2_XS: BlockFormat = {
  type: "IQ2_XS",
  decode(source, sourceOffset, target, targetOffset, valueCount) {
    for (let block = 0; block < valueCount / VALUES; block++) {
      const at = sourceOffset + block * BYTES;
      const d = readHalf(source, at);
      for (let group = 0; group < 32; group++) {
        const word = source[at + 2 + 2 * group] | (source[at + 3 + 2 * group] << 8);
        const s = (source[at + 66 + (group >> 2)] >> (group & 2 ? 4 : 0)) & 15;
        const scale = Math.fround(d * (0.5 + s) * 0.25);
        const grid = (word & 511) * 8;
        const signs = signBits(word >> 9);
        const to = targetOffset + block * VALUES + 8 * group;
        for (let i = 0; i < 8; i++) {
          target[to + i] = scale * ((signs >> i) & 1 ? -IQ2_XS_GRID[grid + i] : IQ2_XS_GRID[grid + i]);
        }
      }
    }
  },
};
