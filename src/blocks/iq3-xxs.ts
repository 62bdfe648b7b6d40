// IQ3_XXS: 256 values in 98 bytes: half d, 64 grid indices (a byte for each 4 values), then per 32 values a u32 with
// four 7-bit sign indices and a 4-bit scale s on top. x = d·(0.5 + s)·0.5·grid·sign. Read only.
import type { BlockFormat } from "./block-format.ts";
import { readHalf } from "./half.ts";
import { IQ3_XXS_GRID } from "./iq3-xxs-grid.ts";
import { signBits } from "./lattice-signs.ts";

const VALUES = 256;
const BYTES = 98;

/** 3-bit lattice blocks. */
export const IQ3_XXS: BlockFormat = {
  type: "IQ3_XXS",
  decode(source, sourceOffset, target, targetOffset, valueCount) {
    const view = new DataView(source.buffer, source.byteOffset, source.byteLength);
    for (let block = 0; block < valueCount / VALUES; block++) {
      const at = sourceOffset + block * BYTES;
      const d = readHalf(source, at);
      for (let part = 0; part < 8; part++) {
        const word = view.getUint32(at + 66 + 4 * part, true);
        const scale = Math.fround(d * (0.5 + (word >>> 28)) * 0.5);
        for (let i = 0; i < 32; i++) {
          const entry = source[at + 2 + 8 * part + (i >> 2)];
          const value = IQ3_XXS_GRID[entry * 4 + (i & 3)];
          const signs = signBits((word >>> (7 * (i >> 3))) & 127);
          target[targetOffset + block * VALUES + 32 * part + i] =
            scale * ((signs >> (i & 7)) & 1 ? -value : value);
        }
      }
    }
  },
};
