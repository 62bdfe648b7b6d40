import { expect, it } from "vitest";
import { ALL, codePointSet, complement, contains, intersection, utf8Ranges } from "./code-points.ts";

it("spells every code point of a set once and no other text", () => {
  const random = (() => {
    let state = 5;
    return (limit: number) => {
      state = (Math.imul(state, 48271) >>> 0) % 0x7fffffff;
      return state % limit;
    };
  })();
  for (let round = 0; round < 40; round++) {
    const ranges = Array.from({ length: 3 }, (): [number, number] => {
      const low = random(round % 2 ? 0x110000 : 0x1000);
      return [low, Math.min(0x10ffff, low + random(0x3000))];
    });
    const set = codePointSet(ranges);
    const blocks = utf8Ranges(set);
    const size = blocks.reduce((sum, block) => sum + block.reduce((n, [a, b]) => n * (b - a + 1), 1), 0);
    expect(size).toBe(set.reduce((sum, [low, high]) => sum + high - low + 1, 0));
    for (let probe = 0; probe < 200; probe++) {
      const codePoint = probe < 100 && set.length > 0 ? set[0][0] + probe - 50 : random(0x110000);
      if (codePoint < 0 || codePoint > 0x10ffff || (codePoint >= 0xd800 && codePoint < 0xe000)) continue;
      const bytes = new TextEncoder().encode(String.fromCodePoint(codePoint));
      const hits = blocks.filter(
        (block) =>
          block.length === bytes.length && block.every(([a, b], at) => bytes[at] >= a && bytes[at] <= b),
      );
      expect(hits.length).toBe(contains(set, codePoint) ? 1 : 0);
    }
  }
});

it("complements and intersects", () => {
  const set = codePointSet([
    [65, 70],
    [68, 90],
  ]);
  expect(set).toEqual([[65, 90]]);
  expect(complement(complement(set))).toEqual(set);
  expect(intersection(set, codePointSet([[80, 100]]))).toEqual([[80, 90]]);
  expect(complement([])).toEqual(ALL);
});
