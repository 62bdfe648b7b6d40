import { describe, expect, it } from "vitest";
import type { GgmlType } from "../blocks/ggml-types.ts";
import { blockFormat } from "../blocks/registry.ts";
import { createRowEncoder } from "./row-encoder.ts";

const encoder = createRowEncoder();

function codeOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    return (error as { code: string }).code;
  }
  return "none";
}

describe("the row encoder", () => {
  it("returns rows · row size bytes that decode to the rows", () => {
    const values = Float32Array.from({ length: 128 }, (_, i) => i - 64);
    const bytes = encoder.encodeRows("Q8_0", values, 2, 64, null);
    expect(bytes.length).toBe(2 * 68);
    const decoded = new Float32Array(128);
    blockFormat("Q8_0").decode(bytes, 0, decoded, 0, 128);
    for (let i = 0; i < 128; i++) expect(Math.abs(decoded[i] - values[i])).toBeLessThan(0.3);
  });

  it("returns no bytes for no rows", () => {
    expect(encoder.encodeRows("Q8_0", new Float32Array(0), 0, 64, null).length).toBe(0);
  });

  it.each<[string, string, GgmlType, Float32Array, number, number, Float32Array | null]>([
    ["unsupported-type", "a type that is only read", "Q3_K", new Float32Array(256), 1, 256, null],
    [
      "unsupported-type",
      "a row that is no whole number of blocks",
      "Q8_0",
      new Float32Array(33),
      1,
      33,
      null,
    ],
    ["convert", "too few values", "Q8_0", new Float32Array(32), 2, 32, null],
    ["convert", "a fraction of a row", "Q8_0", new Float32Array(16), 0.5, 32, null],
    ["convert", "NaN", "F16", Float32Array.of(1, Number.NaN), 1, 2, null],
    ["convert", "infinity", "F16", Float32Array.of(1, Number.NEGATIVE_INFINITY), 1, 2, null],
    ["convert", "importance of another width", "F16", new Float32Array(2), 1, 2, new Float32Array(3)],
    ["convert", "negative importance", "F16", new Float32Array(2), 1, 2, Float32Array.of(1, -1)],
    [
      "convert",
      "importance that is no number",
      "F16",
      new Float32Array(2),
      1,
      2,
      Float32Array.of(Number.NaN, 1),
    ],
  ])("refuses with %s: %s", (code, _what, type, values, rows, cols, importance) => {
    expect(codeOf(() => encoder.encodeRows(type, values, rows, cols, importance))).toBe(code);
  });

  it("refuses a thread count that is none", () => {
    expect(codeOf(() => createRowEncoder({ threads: 0 }))).toBe("convert");
  });
});
