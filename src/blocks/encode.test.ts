import { describe, expect, it } from "vitest";
import { gaussianValues } from "../../test/random-values.ts";
import { type GgmlType, rowBytes } from "./ggml-types.ts";
import { blockFormat } from "./registry.ts";

const COUNT = 8192;

/** Largest relative squared error allowed on gaussian and on heavy-tailed values: a little above what is reached. */
const BOUNDS: [GgmlType, number, number][] = [
  ["BF16", 3e-6, 3e-6],
  ["F16", 5e-8, 5e-8],
  ["Q8_0", 4e-5, 9e-5],
  ["Q4_K", 0.0051, 0.0085],
  ["MXFP4", 0.0145, 0.019],
  ["Q2_K", 0.072, 0.1],
  ["IQ2_XXS", 0.114, 0.16],
];
/** Types whose encoder looks at importance. */
const SEARCHED: GgmlType[] = ["Q4_K", "Q2_K", "IQ2_XXS"];

function roundTrip(type: GgmlType, values: Float32Array, importance?: Float32Array): Float32Array {
  const bytes = new Uint8Array(rowBytes(type, values.length));
  blockFormat(type).encode?.(values, 0, bytes, 0, values.length, importance);
  const decoded = new Float32Array(values.length);
  blockFormat(type).decode(bytes, 0, decoded, 0, values.length);
  return decoded;
}

/** Σ weight · error² / Σ weight · value². */
function relativeError(values: Float32Array, decoded: Float32Array, weights?: Float32Array): number {
  let error = 0;
  let signal = 0;
  for (let i = 0; i < values.length; i++) {
    const weight = weights?.[i] ?? 1;
    error += weight * (decoded[i] - values[i]) ** 2;
    signal += weight * values[i] ** 2;
  }
  return error / signal;
}

const gaussian = gaussianValues(COUNT, 5, 0.02);
const heavy = gaussianValues(COUNT, 6, 0.02).map((value) => value * (1 + Math.abs(value) * 50));
const importance = gaussianValues(COUNT, 7).map((value) => Math.exp(1.5 * value));

describe.each(BOUNDS)("encoding %s", (type, gaussianBound, heavyBound) => {
  it("keeps the error of gaussian and heavy-tailed values within the bounds", () => {
    expect(relativeError(gaussian, roundTrip(type, gaussian))).toBeLessThan(gaussianBound);
    expect(relativeError(heavy, roundTrip(type, heavy))).toBeLessThan(heavyBound);
  });

  it("keeps zeros", () => {
    expect(roundTrip(type, new Float32Array(512))).toEqual(new Float32Array(512));
  });

  it("writes at its offsets and touches nothing else", () => {
    const bytes = new Uint8Array(rowBytes(type, 256) + 9).fill(0xaa);
    blockFormat(type).encode?.(gaussian, 512, bytes, 5, 256, importance);
    const alone = new Uint8Array(rowBytes(type, 256));
    blockFormat(type).encode?.(gaussian.slice(512, 768), 0, alone, 0, 256, importance);
    expect(bytes.subarray(5, 5 + alone.length)).toEqual(alone);
    expect([...bytes.subarray(0, 5), ...bytes.subarray(5 + alone.length)]).toEqual(new Array(9).fill(0xaa));
  });

  it.each([1e-30, 1e-9, 1e-6, 1e4])("stays finite and does not grow for values around %f", (scale) => {
    const values = gaussianValues(512, 8, scale);
    const decoded = roundTrip(type, values);
    expect(decoded.every(Number.isFinite)).toBe(true);
    expect(relativeError(values, decoded)).toBeLessThanOrEqual(1.0001);
  });
});

describe.each<GgmlType>(["Q8_0", ...SEARCHED])("encoding %s at the edges", (type) => {
  it.each([3e38, -3e38])("saturates at %f instead of overflowing", (value) => {
    const decoded = roundTrip(type, new Float32Array(256).fill(value));
    for (const number of decoded) {
      expect(Number.isFinite(number)).toBe(true);
      expect(Math.sign(number)).toBe(Math.sign(value));
      expect(Math.abs(number)).toBeGreaterThan(1e5);
    }
  });
});

describe.each(SEARCHED)("searching %s", (type) => {
  it("lowers the weighted error when importance is given", () => {
    const plain = relativeError(gaussian, roundTrip(type, gaussian), importance);
    const weighted = relativeError(gaussian, roundTrip(type, gaussian, importance), importance);
    expect(weighted).toBeLessThan(0.75 * plain);
  });

  it("treats importance of one constant, and of zero everywhere, as none", () => {
    const none = roundTrip(type, gaussian);
    expect(roundTrip(type, gaussian, new Float32Array(COUNT).fill(4))).toEqual(none);
    expect(roundTrip(type, gaussian, new Float32Array(COUNT))).toEqual(none);
  });

  it("still encodes columns of importance zero", () => {
    const halfZero = importance.map((value, i) => (i % 64 < 32 ? 0 : value));
    expect(relativeError(gaussian, roundTrip(type, gaussian, halfZero))).toBeLessThan(0.2);
  });

  it("keeps one spike among zeros", () => {
    const values = new Float32Array(512);
    values[300] = -2;
    const decoded = roundTrip(type, values);
    // The grid of IQ2_XXS has no zero: its zeros pull the spike down.
    expect(Math.abs(decoded[300] + 2)).toBeLessThan(type === "IQ2_XXS" ? 0.2 : 0.02);
    expect(decoded.filter((value) => Math.abs(value) > 0.5).length).toBe(1);
  });
});

describe.each<GgmlType>(["Q4_K", "Q2_K"])("encoding constants as %s", (type) => {
  it.each([0.37, -0.37, 1e-5])("%f", (value) => {
    for (const number of roundTrip(type, new Float32Array(256).fill(value))) {
      expect(Math.abs(number / value - 1)).toBeLessThan(0.005);
    }
  });
});
