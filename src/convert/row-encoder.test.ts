import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { gaussianValues } from "../../test/random-values.ts";
import { loadNative } from "../backend/native.ts";
import { type GgmlType, rowBytes } from "../blocks/ggml-types.ts";
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

const addon = loadNative().addon;
const DIGEST_SCRIPT = fileURLToPath(new URL("../../test/fixtures/blocks/encode-digest.ts", import.meta.url));

/** Σ importance · error² of an encoding, relative to Σ importance · value². */
function relativeError(
  type: GgmlType,
  bytes: Uint8Array,
  values: Float32Array,
  importance: Float32Array,
): number {
  const decoded = new Float32Array(values.length);
  blockFormat(type).decode(bytes, 0, decoded, 0, values.length);
  let error = 0;
  let signal = 0;
  for (let i = 0; i < values.length; i++) {
    error += importance[i % importance.length] * (decoded[i] - values[i]) ** 2;
    signal += importance[i % importance.length] * values[i] ** 2;
  }
  return error / signal;
}

describe.runIf(addon !== null)("native and TypeScript encoders", () => {
  const rows = 16;
  const cols = 768; // three super-blocks: an odd count
  const values = gaussianValues(rows * cols, 71, 0.03);
  const importance = gaussianValues(cols, 72).map((value) => Math.exp(1.5 * value));

  function inTypeScript(
    type: GgmlType,
    row: Float32Array,
    weights: Float32Array | null,
    width: number,
  ): Uint8Array {
    const bytes = new Uint8Array((row.length / width) * rowBytes(type, width));
    for (let at = 0; at < row.length; at += width) {
      const offset = (at / width) * rowBytes(type, width);
      blockFormat(type).encode?.(row, at, bytes, offset, width, weights ?? undefined);
    }
    return bytes;
  }

  it("are the native ones where the addon is there", () => {
    expect(createRowEncoder({ threads: 2 }).description).toBe("native, 2 threads");
  });

  it.each<GgmlType>(["F32", "F16", "BF16", "Q8_0", "MXFP4"])("give the same bytes for %s", (type) => {
    const wide = values.map((value, i) => value * 2 ** (((i >> 8) % 60) - 30));
    wide.set([0, -0, 1e-40, 3e38, -3e38, 1e6], 32);
    wide.fill(0, 64, 128);
    expect(encoder.encodeRows(type, wide, rows, cols, null)).toEqual(inTypeScript(type, wide, null, cols));
  });

  it.each<GgmlType>(["Q4_K", "Q2_K", "IQ2_XXS"])("are equally good for %s", (type) => {
    for (const weights of [null, importance]) {
      const judge = weights ?? new Float32Array(cols).fill(1);
      const native = relativeError(
        type,
        encoder.encodeRows(type, values, rows, cols, weights),
        values,
        judge,
      );
      const readable = relativeError(type, inTypeScript(type, values, weights, cols), values, judge);
      expect(Math.abs(native / readable - 1)).toBeLessThan(0.001);
    }
  });

  it.each<GgmlType>(["Q8_0", "Q4_K", "Q2_K", "IQ2_XXS"])("agree at the edges for %s", (type) => {
    const spike = new Float32Array(256);
    spike[77] = -1;
    const alike = [0, 0.4, -0.4, 3e38, -3e38, 1e-38].map((value) => new Float32Array(256).fill(value));
    const scaled = [1e-30, 1e-9, 1e-7, 1e-6, 1e-3, 1e5, 1e37].map((scale) => gaussianValues(256, 17, scale));
    for (const row of [spike, ...alike, ...scaled]) {
      for (const weights of [null, new Float32Array(256).map((_, i) => (i % 3) * 1e30)]) {
        const judge = weights ?? new Float32Array(256).fill(1);
        const native = relativeError(type, encoder.encodeRows(type, row, 1, 256, weights), row, judge);
        const readable = relativeError(type, inTypeScript(type, row, weights, 256), row, judge);
        if (Number.isNaN(readable)) expect(native).toBeNaN();
        else expect(Math.abs(native - readable)).toBeLessThanOrEqual(0.02 * readable + 1e-5);
      }
    }
  });

  it("give the same bytes on every instruction set", () => {
    const digest = (level: string) => {
      const env = { ...process.env, DS4_CPU_ISA: level };
      return execFileSync(process.execPath, [DIGEST_SCRIPT], { env, encoding: "utf8" });
    };
    expect(digest("generic")).toMatch(/^([0-9a-f]{64}\n){3}$/);
    expect(digest("avx2")).toBe(digest("generic"));
    expect(digest("")).toBe(digest("generic"));
  });

  it.each<GgmlType>(["Q8_0", "Q4_K", "Q2_K", "IQ2_XXS", "MXFP4"])(
    "do not depend on the thread count for %s",
    (type) => {
      const one = encoder.encodeRows(type, values, rows, cols, importance);
      expect(createRowEncoder({ threads: 3 }).encodeRows(type, values, rows, cols, importance)).toEqual(one);
    },
  );
});
