// All block formats by type.
import type { BlockFormat } from "./block-format.ts";
import type { GgmlType } from "./ggml-types.ts";
import { IQ2_XS } from "./iq2-xs.ts";
import { IQ2_XXS } from "./iq2-xxs.ts";
import { IQ3_XXS } from "./iq3-xxs.ts";
import { IQ4_XS } from "./iq4-xs.ts";
import { MXFP4 } from "./mxfp4.ts";
import { BF16, F16, F32, I32 } from "./plain.ts";
import { Q2_K } from "./q2-k.ts";
import { Q3_K } from "./q3-k.ts";
import { Q4_K } from "./q4-k.ts";
import { Q5_K } from "./q5-k.ts";
import { Q6_K } from "./q6-k.ts";
import { Q8_0 } from "./q8-0.ts";

const FORMATS: Record<GgmlType, BlockFormat> = {
  F32,
  F16,
  BF16,
  I32,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ2_XXS,
  IQ2_XS,
  IQ3_XXS,
  IQ4_XS,
  MXFP4,
};

/** The format of a type: every type of the table can be decoded; `encode` is missing where it is only read. */
export function blockFormat(type: GgmlType): BlockFormat {
  return FORMATS[type];
}
