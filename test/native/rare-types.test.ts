// The types without kernels of their own: packed, unpacked and multiplied by the addon, against the TypeScript decoder.
import { describe, expect, test } from "vitest";
import { loadNative } from "../../src/backend/native.ts";
import { nativeKernels } from "../../src/backend/native-kernels.ts";
import { type GgmlType, ggmlType, rowBytes } from "../../src/blocks/ggml-types.ts";
import { writeHalf } from "../../src/blocks/half.ts";
import { blockFormat } from "../../src/blocks/registry.ts";

/** Where the half floats of a block lie: random bits there would be infinities. */
const HALVES: [GgmlType, number[]][] = [
  ["Q3_K", [108]],
  ["Q5_K", [0, 2]],
  ["Q6_K", [208]],
  ["IQ2_XS", [0]],
  ["IQ3_XXS", [0]],
  ["IQ4_XS", [0]],
];
const { addon } = loadNative();

function randomBytes(count: number, seed: number): Uint8Array {
  let state = seed >>> 0;
  return Uint8Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state >>> 24;
  });
}

describe.skipIf(addon === null)("types without kernels of their own", () => {
  test.each(HALVES)(
    "%s: packed rows come back bit for bit, products are exact to rounding",
    (type, halves) => {
      const kernels = nativeKernels(addon!);
      const [slices, rows, cols] = [2, 37, 768];
      const info = ggmlType(type);
      const bytesPerRow = rowBytes(type, cols);
      const source = randomBytes(slices * rows * bytesPerRow, 7 + info.id);
      for (let block = 0; block < source.length; block += info.blockBytes) {
        for (const at of halves) writeHalf(source, block + at, 0.01 + (source[block + at] % 16) / 400);
      }
      const workspace = new kernels.Workspace(2);
      const paddedRows = 48;
      const arena = new kernels.WeightArena(slices * paddedRows * bytesPerRow);
      const matrix = new kernels.WeightMatrix(arena, 0, info.id, slices, rows, cols);
      const expected = new Float32Array(slices * rows * cols);
      blockFormat(type).decode(source, 0, expected, 0, expected.length);
      for (let slice = 0; slice < slices; slice++) {
        matrix.packRows(
          workspace,
          slice,
          0,
          rows,
          source.subarray(slice * rows * bytesPerRow, (slice + 1) * rows * bytesPerRow),
        );
      }
      const row = new Float32Array(cols);
      for (let index = 0; index < slices * rows; index++) {
        matrix.unpackRow(Math.floor(index / rows), index % rows, row);
        expect(row).toEqual(expected.slice(index * cols, (index + 1) * cols));
      }
      for (const batch of [1, 5]) {
        const x = Float32Array.from(randomBytes(batch * cols, 3), (byte) => (byte - 128) / 64);
        const out = new Float32Array(batch * rows);
        kernels.multiply(workspace, batch, x, [matrix], [out]);
        for (let i = 0; i < out.length; i++) {
          const [token, at] = [Math.floor(i / rows), (i % rows) * cols];
          let sum = 0;
          let size = 0;
          for (let col = 0; col < cols; col++) {
            sum += x[token * cols + col] * expected[at + col];
            size += Math.abs(x[token * cols + col] * expected[at + col]);
          }
          expect(Math.abs(out[i] - sum)).toBeLessThan(1e-5 * size);
        }
      }
      arena.close();
      workspace.close();
    },
  );
});
