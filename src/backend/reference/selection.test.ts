import { describe, expect, test } from "vitest";
import { UnsupportedModelError } from "../../core/errors.ts";
import { slotsByExpert } from "../expert-slots.ts";
import { selectTop } from "./indexer.ts";
import { chooseExperts } from "./router.ts";

describe("selectTop", () => {
  test.each([0, 1, 7, 8, 9, 511, 512, 513])("equals a sort over %d entries (case 34)", (length) => {
    const scores = Float32Array.from({ length }, (_, index) => Math.round(Math.sin(index * 7.3) * 20)); // many ties
    const order = [...scores.keys()].sort((a, b) => scores[b] - scores[a] || a - b);
    expect([...selectTop(scores, 8)]).toEqual(order.slice(0, 8).sort((a, b) => a - b));
  });

  test("ranks scores that are not numbers last and stays in range", () => {
    const scores = Float32Array.of(Number.NaN, 1, Number.NaN, 3, Number.NaN);
    expect([...selectTop(scores, 2)]).toEqual([1, 3]);
    expect([...selectTop(scores, 4)]).toEqual([0, 1, 2, 3]);
  });
});

describe("chooseExperts", () => {
  test("takes the best of score plus bias, the lower index at ties", () => {
    const scores = Float32Array.of(1, 2, 2, 0.5);
    expect([...chooseExperts(scores, new Float32Array(4), 3, 0)]).toEqual([1, 2, 0]);
    expect([...chooseExperts(scores, Float32Array.of(0, 0, 0, 9), 2, 0)]).toEqual([3, 1]);
  });

  test("refuses scores that are not finite, naming the layer (case 41)", () => {
    const scores = new Float32Array(8).fill(Number.NaN);
    expect(() => chooseExperts(scores, new Float32Array(8), 2, 5)).toThrow(UnsupportedModelError);
    expect(() => chooseExperts(scores, new Float32Array(8), 2, 5)).toThrow("layer 5");
    const infinite = Float32Array.of(1, Number.NEGATIVE_INFINITY, 2, 3);
    expect(() => chooseExperts(infinite, new Float32Array(4), 2, 5)).toThrow(UnsupportedModelError);
  });
});

test("grouping by expert skips ids outside the range (case 40)", () => {
  const experts = Int32Array.of(-1, 3, -1, -1, 7, 0, 8, 2);
  expect(slotsByExpert(experts, 8)).toEqual([
    [0, [5]],
    [2, [7]],
    [3, [1]],
    [7, [4]],
  ]);
});
