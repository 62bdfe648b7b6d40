import { expect, test } from "vitest";
import { tinyModel } from "../../../test/fixtures/tiny-model.ts";
import { readModelSpec } from "../../model/spec-reader.ts";
import { createRounding, hadamard, roundE2m1, roundE4m3 } from "./rounding.ts";

/** All finite e4m3 magnitudes, from the definition: 4 exponent bits (bias 7), 3 mantissa bits. */
const E4M3 = Array.from({ length: 127 }, (_, code) => {
  const exponent = code >> 3;
  return exponent === 0 ? (code & 7) * 2 ** -9 : (1 + (code & 7) / 8) * 2 ** (exponent - 7);
});

test("e4m3 values are kept, and everything between goes to the nearer neighbour, ties to the even code", () => {
  E4M3.forEach((value, code) => {
    expect(roundE4m3(-value)).toBe(value === 0 ? -0 : -value);
    if (code === 126) return;
    const middle = (value + E4M3[code + 1]) / 2;
    expect(roundE4m3(middle)).toBe(E4M3[code % 2 === 0 ? code : code + 1]);
    expect(roundE4m3(middle + (middle - value) * 0.01)).toBe(E4M3[code + 1]);
    expect(roundE4m3(middle - (middle - value) * 0.01)).toBe(value);
  });
  expect(roundE4m3(1e9)).toBe(448);
});

test("e2m1 rounds to 0, .5, 1, 1.5, 2, 3, 4, 6 with ties to the even code", () => {
  const cases: [number, number][] = [
    [0.25, 0],
    [0.26, 0.5],
    [0.75, 1],
    [1.25, 1],
    [1.75, 2],
    [2.5, 2],
    [2.6, 3],
    [3.5, 4],
    [5, 4],
    [5.1, 6],
    [60, 6],
    [-1.4, -1.5],
  ];
  for (const [value, rounded] of cases) expect(roundE2m1(value)).toBe(rounded);
});

test("the Hadamard rotation keeps lengths and undoes itself", () => {
  const values = Float32Array.from({ length: 128 }, (_, index) => Math.sin(index * 1.7) * 3);
  const rotated = values.slice();
  hadamard(rotated);
  const energy = (array: Float32Array) => array.reduce((sum, value) => sum + value * value, 0);
  expect(energy(rotated)).toBeCloseTo(energy(values), 2);
  expect(rotated[0]).toBeCloseTo(values.reduce((sum, value) => sum + value, 0) / Math.sqrt(128), 4);
  hadamard(rotated);
  rotated.forEach((value, index) => {
    expect(value).toBeCloseTo(values[index], 5);
  });
});

test("official rounding is idempotent on keys and values and touches rotated dims only as bfloat16", () => {
  const spec = readModelSpec(tinyModel());
  const rounding = createRounding("official", spec);
  const rows = Float32Array.from({ length: 2 * spec.headDim }, (_, index) => Math.cos(index * 0.9) * 2.3);
  const once = rows.slice();
  rounding.keyValueRows(once, spec.headDim);
  const twice = once.slice();
  rounding.keyValueRows(twice, spec.headDim);
  expect(twice).toEqual(once);
  const firstRotated = spec.headDim - spec.rope.dims;
  once.forEach((value, index) => {
    const relative = Math.abs(value - rows[index]) / Math.abs(rows[index]);
    if (index % spec.headDim >= firstRotated) expect(relative).toBeLessThan(2 ** -8);
    else expect(Math.abs(value - rows[index])).toBeLessThan(2.3 / 16);
  });
  const zeros = new Float32Array(spec.indexerHeadDim);
  rounding.indexerEntries(zeros, spec.indexerHeadDim);
  expect(zeros).toEqual(new Float32Array(spec.indexerHeadDim));
});
