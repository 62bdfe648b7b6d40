// The small floats of checkpoints: known codes, tile edges, and FP4 against its MXFP4 repacking.
import { expect, test } from "vitest";
import { MXFP4 } from "../blocks/mxfp4.ts";
import { decodeFp4, decodeFp8Rows, E4M3_VALUES, repackFp4 } from "./small-floats.ts";

test("e4m3: zero, subnormals, one, the largest, the signs and the two NaNs", () => {
  const codes = {
    0: 0,
    1: 2 ** -9,
    7: 7 * 2 ** -9,
    8: 2 ** -6,
    56: 1,
    57: 1.125,
    126: 448,
    184: -1,
    254: -448,
  };
  for (const [code, value] of Object.entries(codes)) expect(E4M3_VALUES[Number(code)], code).toBe(value);
  expect([...E4M3_VALUES.entries()].filter(([, value]) => Number.isNaN(value)).map(([code]) => code)).toEqual(
    [0x7f, 0xff],
  );
  expect(Object.is(E4M3_VALUES[0x80], -0)).toBe(true);
});

test("FP8: the scale of each tile reaches to its edge, also in a slice that starts within a tile", () => {
  const [rows, columns] = [260, 200];
  const codes = new Uint8Array(rows * columns).fill(0x38); // all ones
  const scales = Uint8Array.from([127, 128, 129, 130, 131, 132]); // 3 x 2 tiles: 1, 2, 4, 8, 16, 32
  const expected = (row: number, column: number) =>
    2 ** (2 * Math.floor(row / 128) + Math.floor(column / 128));
  const whole = decodeFp8Rows(codes, scales, 0, rows, columns);
  whole.forEach((value, i) => {
    if (value !== expected(Math.floor(i / columns), i % columns)) throw new Error(`value ${i} is ${value}`);
  });
  const slice = decodeFp8Rows(codes.subarray(0, 131 * columns), scales.subarray(2), 128 + 1, 131, columns);
  expect(slice).toEqual(whole.subarray(129 * columns));
});

test("FP8: scale 0 is 2^-127, scale 255 no number", () => {
  const values = decodeFp8Rows(Uint8Array.of(0x38), Uint8Array.of(0), 0, 1, 1);
  expect(values).toEqual(Float32Array.of(2 ** -127));
  expect(decodeFp8Rows(Uint8Array.of(0x38), Uint8Array.of(255), 0, 1, 1)[0]).toBeNaN();
});

test("FP4: even columns in the low nibble, sixteen codes", () => {
  const codes = Uint8Array.from({ length: 16 }, (_, i) => (i < 8 ? 2 * i + 16 * (2 * i + 1) : 0));
  const values = decodeFp4(codes, Uint8Array.of(128));
  const magnitudes = [0, 1, 2, 3, 4, 6, 8, 12];
  expect([...values.subarray(0, 8)]).toEqual(magnitudes);
  expect([...values.subarray(9, 16)]).toEqual(magnitudes.slice(1).map((value) => -value));
});

test("FP4 repacked to MXFP4 decodes to the same values, codes and scales of every kind", () => {
  const codes = Uint8Array.from({ length: 256 * 16 }, (_, i) => (i * 167 + (i >> 8) * 31) & 255);
  const scales = Uint8Array.from({ length: 256 }, (_, i) => Math.min(i, 254));
  const blocks = repackFp4(codes, scales);
  expect(blocks.length).toBe(256 * 17);
  const values = new Float32Array(codes.length * 2);
  MXFP4.decode(blocks, 0, values, 0, values.length);
  expect(Buffer.compare(Buffer.from(values.buffer), Buffer.from(decodeFp4(codes, scales).buffer))).toBe(0);
});
