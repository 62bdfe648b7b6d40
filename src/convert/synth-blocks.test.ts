// Random blocks decode to finite values of the wanted spread, and hold what writers of each format hold.
import { describe, expect, it } from "vitest";
import { type GgmlType, ggmlType } from "../blocks/ggml-types.ts";
import { blockFormat } from "../blocks/registry.ts";
import { Random } from "../core/random.ts";
import { fillExpertRows, fillRandomBlocks } from "./synth-blocks.ts";

const VALUES = 256 * 400;

function decoded(type: GgmlType, mean: number, std: number): { values: Float32Array; bytes: Uint8Array } {
  const { blockBytes, blockValues } = ggmlType(type);
  const bytes = new Uint8Array((VALUES / blockValues) * blockBytes);
  fillRandomBlocks(type, bytes, { mean, std }, new Random(7));
  const values = new Float32Array(VALUES);
  blockFormat(type).decode(bytes, 0, values, 0, VALUES);
  return { values, bytes };
}

function moments(values: Float32Array): { mean: number; std: number } {
  let sum = 0;
  let squares = 0;
  for (const value of values) {
    sum += value;
    squares += value * value;
  }
  const mean = sum / values.length;
  return { mean, std: Math.sqrt(squares / values.length - mean * mean) };
}

describe("fillRandomBlocks", () => {
  const quantized: GgmlType[] = ["Q8_0", "Q2_K", "Q4_K", "IQ2_XXS", "MXFP4"];

  it.each(quantized.flatMap((type) => [1 / 16, 1 / 64, 1 / 128].map((std) => [type, std] as const)))(
    "%s with spread %f",
    (type, std) => {
      const found = moments(decoded(type, 0, std).values);
      expect(Math.abs(found.mean) / std).toBeLessThan(0.03);
      expect(found.std / std).toBeGreaterThan(0.94);
      expect(found.std / std).toBeLessThan(1.06);
    },
  );

  it.each(["F32", "F16", "BF16"] as const)("%s around a mean", (type) => {
    const found = moments(decoded(type, 1, 0.1).values);
    expect(found.mean).toBeCloseTo(1, 2);
    expect(found.std).toBeCloseTo(0.1, 2);
  });

  it("never stores -128 in Q8_0", () => {
    const { bytes } = decoded("Q8_0", 0, 0.1);
    expect(bytes.some((byte, index) => index % 34 >= 2 && byte === 0x80)).toBe(false);
  });

  it("refuses types that no recipe uses", () => {
    const fill = () => fillRandomBlocks("Q6_K", new Uint8Array(210), { mean: 0, std: 1 }, new Random(1));
    expect(fill).toThrow(expect.objectContaining({ code: "unsupported-type" }));
  });
});

it("fills rows of distinct expert ids", () => {
  const rows = 500;
  const target = new Uint8Array(rows * 6 * 4);
  fillExpertRows(target, 6, 8, new Random(3));
  const ids = new Int32Array(target.buffer);
  for (let row = 0; row < rows; row++) {
    const own = ids.subarray(6 * row, 6 * row + 6);
    expect(new Set(own).size).toBe(6);
    expect(own.every((id) => id >= 0 && id < 8)).toBe(true);
  }
  expect(new Set(ids).size).toBe(8);
});
