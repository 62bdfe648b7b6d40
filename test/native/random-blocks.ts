// Random but valid tensor bytes in file layout, for kernel tests and measurements: any quants, finite scales.
import { type GgmlType, ggmlType } from "../../src/blocks/ggml-types.ts";
import { mulberry32 } from "../random-values.ts";

/** The tensor types that the CPU kernels multiply. */
export const PACKABLE_TYPES = [
  "F32",
  "F16",
  "BF16",
  "Q8_0",
  "Q4_K",
  "Q2_K",
  "IQ2_XXS",
  "MXFP4",
] as const satisfies readonly GgmlType[];

/** Types without kernels of their own: kept as file blocks. */
export const RARE_TYPES = [
  "Q3_K",
  "Q5_K",
  "Q6_K",
  "IQ2_XS",
  "IQ3_XXS",
  "IQ4_XS",
] as const satisfies readonly GgmlType[];

/** Byte offsets of 16-bit floats in a block: its scales, or the value itself. */
const HALVES: Partial<Record<GgmlType, number[]>> = {
  F16: [0],
  Q8_0: [0],
  Q2_K: [80, 82],
  Q4_K: [0, 2],
  IQ2_XXS: [0],
  Q3_K: [108],
  Q5_K: [0, 2],
  Q6_K: [208],
  IQ2_XS: [0],
  IQ3_XXS: [0],
  IQ4_XS: [0],
};

/** `blocks` blocks of a type; the same bytes for the same seed. */
export function randomBlocks(type: GgmlType, blocks: number, seed: number): Uint8Array {
  const { blockBytes } = ggmlType(type);
  const random = mulberry32(seed);
  const words = new Uint32Array(Math.ceil((blocks * blockBytes) / 4)).map(() => random());
  const bytes = new Uint8Array(words.buffer, 0, blocks * blockBytes);
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length; at += blockBytes) {
    // Magnitudes 2^-8 to 2^-4.
    for (const offset of HALVES[type] ?? []) view.setUint16(at + offset, 0x1c00 + (random() & 0x8fff), true);
    if (type === "F32") view.setFloat32(at, (random() / 2 ** 32 - 0.5) * 0.25, true);
    if (type === "BF16") view.setUint16(at, 0x3c00 + (random() & 0x81ff), true);
    if (type === "MXFP4") bytes[at] = 118 + (random() & 7);
  }
  return bytes;
}
