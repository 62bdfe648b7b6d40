// All block formats by type.
import { Ds4Error } from "../core/errors.ts";
import type { BlockFormat } from "./block-format.ts";
import type { GgmlType } from "./ggml-types.ts";
import { IQ2_XXS } from "./iq2-xxs.ts";
import { MXFP4 } from "./mxfp4.ts";
import { BF16, F16, F32, I32 } from "./plain.ts";
import { Q2_K } from "./q2-k.ts";
import { Q4_K } from "./q4-k.ts";
import { Q8_0 } from "./q8-0.ts";

const FORMATS: Partial<Record<GgmlType, BlockFormat>> = {
  F32,
  F16,
  BF16,
  I32,
  Q8_0,
  Q2_K,
  Q4_K,
  IQ2_XXS,
  MXFP4,
};

/** The format of a type. Throws `unsupported-type` where the type is known but cannot be decoded. */
export function blockFormat(type: GgmlType): BlockFormat {
  const format = FORMATS[type];
  if (format === undefined) throw new Ds4Error("unsupported-type", `tensor type ${type} cannot be decoded`);
  return format;
}
