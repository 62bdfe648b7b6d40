import { expect, test } from "vitest";
import { textTable } from "./text-table.ts";

const ROWS = [
  ["name", "bytes", "note"],
  ["a", "12345", "x"],
  ["longer", "7", ""],
];

test("columns are as wide as their widest cell, and no line ends in spaces", () => {
  expect(textTable("lrl", ROWS)).toEqual(["name    bytes  note", "a       12345  x", "longer      7"]);
});

test("the rule is as wide as the columns", () => {
  expect(textTable("rrr", ROWS, { isRuled: true }).slice(0, 2)).toEqual([
    "  name  bytes  note",
    "------  -----  ----",
  ]);
});

test("none of no rows, and more rows than a call may have arguments", () => {
  expect(textTable("lr", [])).toEqual([]);
  const many = Array.from({ length: 300_000 }, (_, i) => [String(i)]);
  expect(textTable("r", many)[0]).toBe("     0");
});
