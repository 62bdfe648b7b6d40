// Random blocks of each tensor type with a given mean and spread: every field within what writers of the format
// produce, so that any reader accepts them and activations stay finite.
import { type GgmlType, ggmlType } from "../blocks/ggml-types.ts";
import { writeHalf } from "../blocks/half.ts";
import { IQ2_XXS_GRID } from "../blocks/iq2-xxs-grid.ts";
import { E2M1_VALUES } from "../blocks/mxfp4.ts";
import { blockFormat } from "../blocks/registry.ts";
import { Ds4Error } from "../core/errors.ts";
import type { Random } from "../core/random.ts";

/** Distribution of the decoded values. Quantized types always have mean 0. */
export interface ValueSpread {
  mean: number;
  std: number;
}

const meanSquare = (values: ArrayLike<number>) =>
  Array.from(values).reduce((sum, value) => sum + value * value, 0) / values.length;
const range = (first: number, last: number) =>
  Array.from({ length: last - first + 1 }, (_, index) => first + index);
const rms = (values: ArrayLike<number>) => Math.sqrt(meanSquare(values));
/** Standard deviation of uniform integers 0..count-1. */
const uniformStd = (count: number) => Math.sqrt((count * count - 1) / 12);

/** Block scales vary by a quarter around their mean, as trained ones do; this is their root mean square. */
const SCALE_JITTER = 0.25;
const JITTER_RMS = Math.sqrt(1 + SCALE_JITTER ** 2 / 3);
const jitter = (random: Random) => 1 + SCALE_JITTER * (2 * random.nextFloat() - 1);

/**
 * Fills `target`, whose length is a multiple of the type's block, with random blocks. Throws `unsupported-type` for
 * types that no recipe uses.
 */
export function fillRandomBlocks(
  type: GgmlType,
  target: Uint8Array,
  spread: ValueSpread,
  random: Random,
): void {
  if (type === "F32" || type === "F16" || type === "BF16") {
    fillFloats(type, target, spread, random);
    return;
  }
  const patch = PATCHES[type];
  if (patch === undefined) {
    const known = ["F32", "F16", "BF16", ...Object.keys(PATCHES)].join(", ");
    throw new Ds4Error("unsupported-type", `random blocks of ${type} are not made; known types: ${known}`);
  }
  fillBytes(target, random);
  const { blockBytes } = ggmlType(type);
  for (let at = 0; at < target.length; at += blockBytes) patch(target, at, spread.std / JITTER_RMS, random);
}

/** `ids` distinct numbers of 0..`bound`-1 per row, as little-endian int32, until `target` is full. */
export function fillExpertRows(target: Uint8Array, ids: number, bound: number, random: Random): void {
  const view = new DataView(target.buffer, target.byteOffset, target.byteLength);
  const chosen = new Set<number>();
  for (let at = 0; at < target.length; at += 4 * ids) {
    chosen.clear();
    while (chosen.size < ids) chosen.add(Math.floor(random.nextFloat() * bound));
    let index = 0;
    for (const id of chosen) view.setInt32(at + 4 * index++, id, true);
  }
}

function fillBytes(target: Uint8Array, random: Random): void {
  const view = new DataView(target.buffer, target.byteOffset, target.byteLength);
  const whole = target.length - (target.length % 4);
  for (let at = 0; at < whole; at += 4) view.setUint32(at, random.nextUint32(), true);
  for (let at = whole; at < target.length; at++) target[at] = random.nextUint32() & 255;
}

/** Three ten-bit uniforms added: near enough to a bell curve, at one random number a value. */
function fillFloats(
  type: "F32" | "F16" | "BF16",
  target: Uint8Array,
  { mean, std }: ValueSpread,
  random: Random,
): void {
  const values = new Float32Array(target.length / ggmlType(type).blockBytes);
  const scale = std / (Math.sqrt(3) * uniformStd(1024));
  for (let index = 0; index < values.length; index++) {
    const bits = random.nextUint32();
    const sum = (bits & 1023) + ((bits >>> 10) & 1023) + ((bits >>> 20) & 1023);
    values[index] = mean + scale * (sum - 1.5 * 1023);
  }
  blockFormat(type).encode?.(values, 0, target, 0, values.length);
}

/** Overwrites the fields of a block of random bytes that cannot be random. */
type BlockPatch = (block: Uint8Array, at: number, std: number, random: Random) => void;

const PATCHES: Partial<Record<GgmlType, BlockPatch>> = {
  Q8_0: patchQ8,
  Q2_K: patchQ2K,
  Q4_K: patchQ4K,
  IQ2_XXS: patchIq2Xxs,
  MXFP4: patchMxfp4,
};

const Q8_STD = uniformStd(256);

function patchQ8(block: Uint8Array, at: number, std: number, random: Random): void {
  writeHalf(block, at, (jitter(random) * std) / Q8_STD);
  // Writers never store -128, and kernels may rely on it.
  for (let i = at + 2; i < at + 34; i++) if (block[i] === 0x80) block[i] = 0x81;
}

const Q2K_STD = rms(range(1, 15)) * uniformStd(4);
const Q4K_STD = rms(range(16, 63)) * uniformStd(16);

/** A min that nearly centres its sub-block: the scale's own number, one up or down. */
function nearby(scale: number, max: number, random: Random): number {
  return Math.min(max, Math.max(0, scale + (random.nextUint32() % 3) - 1));
}

function patchQ2K(block: Uint8Array, at: number, std: number, random: Random): void {
  for (let j = 0; j < 16; j++) {
    const scale = 1 + (random.nextUint32() % 15);
    block[at + j] = scale | (nearby(scale, 15, random) << 4);
  }
  const d = writeHalf(block, at + 80, (jitter(random) * std) / Q2K_STD);
  writeHalf(block, at + 82, 1.5 * d);
}

function patchQ4K(block: Uint8Array, at: number, std: number, random: Random): void {
  const d = writeHalf(block, at, (jitter(random) * std) / Q4K_STD);
  writeHalf(block, at + 2, 7.5 * d);
  const scales = Array.from({ length: 8 }, () => 16 + (random.nextUint32() % 48));
  const mins = scales.map((scale) => nearby(scale, 63, random));
  for (let j = 0; j < 4; j++) {
    block[at + 4 + j] = scales[j] | ((scales[j + 4] >> 4) << 6);
    block[at + 8 + j] = mins[j] | ((mins[j + 4] >> 4) << 6);
    block[at + 12 + j] = (scales[j + 4] & 15) | ((mins[j + 4] & 15) << 4);
  }
}

const IQ2_STD = rms(range(0, 15).map((scale) => scale + 0.5)) * 0.25 * rms(IQ2_XXS_GRID);

function patchIq2Xxs(block: Uint8Array, at: number, std: number, random: Random): void {
  writeHalf(block, at, (jitter(random) * std) / IQ2_STD);
}

const E2M1_MEAN_SQUARE = meanSquare(E2M1_VALUES);

function patchMxfp4(block: Uint8Array, at: number, std: number, random: Random): void {
  const wanted = (std * JITTER_RMS) ** 2 / E2M1_MEAN_SQUARE;
  // One of the two powers around the wanted scale, in the shares that give its mean square.
  const exponent = Math.floor(Math.log2(wanted) / 2);
  const isUpper = random.nextFloat() < (wanted / 4 ** exponent - 1) / 3;
  block[at] = 127 + exponent + (isUpper ? 1 : 0);
}
