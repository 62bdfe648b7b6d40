import { expect, test } from "vitest";
import type { RopeSpec } from "./model-spec.ts";
import { ropeFrequencies } from "./rope-frequencies.ts";

/** V4-Flash. */
const FLASH: RopeSpec = {
  dims: 64,
  freqBase: 10000,
  compressFreqBase: 160000,
  yarnFactor: 16,
  yarnOriginalContext: 65536,
  yarnBetaFast: 32,
  yarnBetaSlow: 1,
};

test("sliding layers turn by the plain geometric series", () => {
  const frequencies = ropeFrequencies(FLASH, false);
  expect(frequencies.length).toBe(32);
  expect(frequencies[0]).toBe(1);
  expect(frequencies[16]).toBeCloseTo(0.01, 9);
});

test("compressed layers keep fast pairs, divide slow pairs by the factor and blend between", () => {
  const frequencies = ropeFrequencies(FLASH, true);
  const plain = (pair: number) => 160000 ** (-pair / 32);
  // 64 ln(65536 / (32 * 2 pi)) / (2 ln 160000) = 15.46 and 64 ln(65536 / (2 pi)) / (2 ln 160000) = 24.70.
  for (let pair = 0; pair <= 15; pair++) expect(frequencies[pair] / plain(pair)).toBeCloseTo(1, 6);
  for (let pair = 25; pair < 32; pair++) expect(frequencies[pair] / plain(pair)).toBeCloseTo(1 / 16, 6);
  const keep = 1 - (20 - 15) / (25 - 15);
  expect(frequencies[20] / plain(20)).toBeCloseTo((1 - keep) / 16 + keep, 6);
});

test("a factor of 1 means no scaling", () => {
  const frequencies = ropeFrequencies({ ...FLASH, yarnFactor: 1 }, true);
  frequencies.forEach((frequency, pair) => {
    expect(frequency / 160000 ** (-pair / 32)).toBeCloseTo(1, 6);
  });
});
