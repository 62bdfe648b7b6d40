import { expect, test } from "vitest";
import { median } from "./median.ts";

test.each([
  [[], 0],
  [[10, 9, 100], 10],
  [[4, 1, 100, 2], 3],
])("of %j: %d", (values, expected) => {
  const before = [...values];
  expect(median(values)).toBe(expected);
  expect(values).toEqual(before);
});
