import { describe, expect, it } from "vitest";
import { expectLinear } from "../../test/fixtures/growth.ts";
import { largestValues } from "./largest-values.ts";
import { Random } from "./random.ts";

/** The same by a plain sort. */
function sorted(values: Float32Array, count: number): number[] {
  const before = (a: number, b: number) => {
    const [x, y] = [values[a], values[b]];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(y)) - Number(Number.isNaN(x)) || a - b;
    return x === y ? a - b : y - x;
  };
  return [...values.keys()].sort(before).slice(0, count);
}

const random = new Random(3);
const uniform = (length: number) => Float32Array.from({ length }, () => random.nextFloat() * 40 - 20);
const rounded = (length: number, step: number) =>
  uniform(length).map((value) => Math.round(value / step) * step);

describe("largest values", () => {
  const rows: [string, Float32Array][] = [
    ["random", uniform(5000)],
    ["ties", rounded(5000, 4)],
    ["few", rounded(7, 1)],
    ["none", new Float32Array(0)],
    ["one value", new Float32Array(3000).fill(-2)],
    ["ascending", uniform(4000).sort()],
    ["descending", uniform(4000).sort().reverse()],
    ["both zeros", Float32Array.from({ length: 2000 }, (_, i) => (i % 3 === 0 ? -0 : i % 3 === 1 ? 0 : -1))],
    ["-Infinity", uniform(3000).map((value, i) => (i % 50 === 0 ? value : Number.NEGATIVE_INFINITY))],
    ["nothing but -Infinity", new Float32Array(1500).fill(Number.NEGATIVE_INFINITY)],
    [
      "+Infinity and NaN",
      uniform(3000).map((value, i) => [value, Number.NaN, Infinity, value][i % 7] ?? value),
    ],
    ["nothing but NaN", new Float32Array(1500).fill(Number.NaN)],
    ["the smallest numbers", uniform(2000).map((value) => value * 1e-44)],
  ];

  it.each(rows)("of a row with %s are those of a sort", (_name, row) => {
    for (const count of [0, 1, 2, 40, 256]) {
      const { places, values } = largestValues(row, count);
      expect([...places]).toEqual(sorted(row, count));
      expect([...values]).toEqual([...places].map((place) => row[place]));
    }
  });

  it("finds a NaN wherever it is, of either sign", () => {
    for (const at of [0, 300, 4999]) {
      const row = uniform(5000);
      new Uint32Array(row.buffer)[at] = at === 300 ? 0xffc00001 : 0x7f800001;
      expect(largestValues(row, 40).places[0]).toBe(at);
    }
  });

  it("reads a part of an array, and grows with its length", () => {
    const row = uniform(129_280);
    expect([...largestValues(row.subarray(5, 405), 3).places]).toEqual(sorted(row.slice(5, 405), 3));
    expectLinear(row.length, (length) => {
      for (let i = 0; i < 20; i++) largestValues(row.subarray(0, length), 256);
    });
  });
});
