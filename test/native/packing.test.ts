// Packing moves bits and loses none: every packed row decodes to exactly what the TypeScript decoder makes of the file.
import { describe, expect, test } from "vitest";
import { loadNative } from "../../src/backend/native.ts";
import { nativeKernels } from "../../src/backend/native-kernels.ts";
import { ggmlType, rowBytes } from "../../src/blocks/ggml-types.ts";
import { blockFormat } from "../../src/blocks/registry.ts";
import { PACKABLE_TYPES, randomBlocks } from "./random-blocks.ts";

const { addon } = loadNative();
const native = addon === null ? null : nativeKernels(addon);

const ROWS = 41; // two whole panels and a part

describe.skipIf(native === null)("pack, then unpack", () => {
  const cases = PACKABLE_TYPES.flatMap((type) => {
    const block = ggmlType(type).blockValues;
    return [768, ...(block <= 32 ? [288] : []), ...(block === 1 ? [131, 1] : [])].map((cols) => ({
      type,
      cols,
    }));
  });
  test.each(cases)("$type, $cols columns", ({ type, cols }) => {
    if (native === null) return;
    const info = ggmlType(type);
    const bytes = rowBytes(type, cols);
    const slices = 2;
    const arena = new native.WeightArena(slices * 48 * bytes);
    const matrix = new native.WeightMatrix(arena, 0, info.id, slices, ROWS, cols);
    const workspace = new native.Workspace(2);
    for (let slice = 0; slice < slices; slice++) {
      const file = randomBlocks(type, (ROWS * cols) / info.blockValues, 7 + slice);
      // In two pieces, as a long tensor is loaded.
      matrix.packRows(workspace, slice, 0, 32, file.subarray(0, 32 * bytes));
      matrix.packRows(workspace, slice, 32, ROWS - 32, file.subarray(32 * bytes));
      const expected = new Float32Array(cols);
      const found = new Float32Array(cols);
      for (let row = 0; row < ROWS; row++) {
        blockFormat(type).decode(file, row * bytes, expected, 0, cols);
        matrix.unpackRow(slice, row, found);
        // Bits, so that -0 is not 0.
        expect(new Uint32Array(found.buffer), `slice ${slice}, row ${row}`).toEqual(
          new Uint32Array(expected.buffer),
        );
      }
    }
  });
});
