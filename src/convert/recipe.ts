// Recipes: which tensor type each tensor of a model gets. Pure rules by tensor name, the same for files made from a
// checkpoint, re-quantized files and synthetic ones. q2, q2-q4 and q4 are the published ds4 files' tables; mxfp4 keeps every value
// of an official checkpoint.
import { type GgmlType, ggmlType } from "../blocks/ggml-types.ts";

/** Names of the recipes, smallest loss first. */
export const RECIPES = ["f32", "mxfp4", "q8", "q4", "q2-q4", "q2"] as const;

/** A named choice of tensor types. */
export type Recipe = (typeof RECIPES)[number];

/** What a tensor is, as far as its type depends on it. */
export type TensorClass =
  /** Norms, biases, sinks, hyper-connection base and scale: always F32. */
  | "vector"
  /** The token-to-expert table: always I32. */
  | "index"
  /** Routed gate and up matrices. */
  | "expert-gate-up"
  /** Routed down matrices. */
  | "expert-down"
  /** Router, hyper-connection projections and the compressors' position tables: small and sensitive. */
  | "sensitive"
  /** Embedding, compressor and indexer projections. */
  | "plain"
  /** Attention projections, the shared expert and the output head. */
  | "dense";

/** Share of the layers whose experts q2-q4 keeps at four bits: the last six of V4-Flash's 43. */
const LATE_SHARE = 6 / 43;
/** And at least so many. */
const MIN_LATE_LAYERS = 2;

const DS4_TYPES: Readonly<Record<TensorClass, GgmlType>> = {
  vector: "F32",
  index: "I32",
  "expert-gate-up": "IQ2_XXS",
  "expert-down": "Q2_K",
  sensitive: "F16",
  plain: "F16",
  dense: "Q8_0",
};

const withExperts = (type: GgmlType): Readonly<Record<TensorClass, GgmlType>> => ({
  ...DS4_TYPES,
  "expert-gate-up": type,
  "expert-down": type,
});

const ALL_FLOAT: Readonly<Record<TensorClass, GgmlType>> = {
  ...withExperts("F32"),
  sensitive: "F32",
  plain: "F32",
  dense: "F32",
};

/** Every FP8 value with a power-of-two scale is a BF16 value, every FP4 block an MXFP4 block. */
const LOSSLESS_TYPES: Readonly<Record<TensorClass, GgmlType>> = {
  ...withExperts("MXFP4"),
  sensitive: "F32",
  plain: "BF16",
  dense: "BF16",
};

const DESCRIPTIONS: Readonly<Record<Recipe, string>> = {
  f32: "everything F32",
  mxfp4: "an official checkpoint without loss: experts MXFP4, matrices BF16",
  q8: "experts and dense matrices Q8_0",
  q4: "experts Q4_K, dense matrices Q8_0",
  "q2-q4": "like q2, with the experts of the last layers Q4_K",
  q2: "experts IQ2_XXS, their down matrices Q2_K, dense matrices Q8_0",
};

const TYPES: Readonly<Record<Recipe, Readonly<Record<TensorClass, GgmlType>>>> = {
  f32: ALL_FLOAT,
  q8: withExperts("Q8_0"),
  mxfp4: LOSSLESS_TYPES,
  q4: withExperts("Q4_K"),
  "q2-q4": DS4_TYPES,
  q2: DS4_TYPES,
};

/** `general.file_type` as ggml numbers them: the type of most of the bytes. */
const FILE_TYPES: Readonly<Record<Recipe, number>> = {
  f32: 0,
  q8: 7,
  mxfp4: 38,
  q4: 15,
  "q2-q4": 19,
  q2: 19,
};

/** Whether `text` names a recipe. */
export function isRecipe(text: string): text is Recipe {
  return (RECIPES as readonly string[]).includes(text);
}

/** The value of `general.file_type` for a recipe. */
export function recipeFileType(recipe: Recipe): number {
  return FILE_TYPES[recipe];
}

/** One line about a recipe, for help texts. */
export function describeRecipe(recipe: Recipe): string {
  return DESCRIPTIONS[recipe];
}

/** Sorts a tensor by its name in the file. Unknown names of matrices count as dense. */
export function tensorClass(tensorName: string): TensorClass {
  const name = tensorName.replace(/^(blk|mtp)\.\d+\./, "").replace(/\.(weight|bias)$/, "");
  if (name === "ffn_gate_tid2eid") return "index";
  if (name === "ffn_gate_exps" || name === "ffn_up_exps") return "expert-gate-up";
  if (name === "ffn_down_exps") return "expert-down";
  if (/norm$|^attn_sinks$|^exp_probs_b$|hc_(attn_|ffn_|head_)?(base|scale)$/.test(name)) return "vector";
  if (/hc_(attn_|ffn_|head_)?fn$|_compressor_ape$|^ffn_gate_inp$/.test(name)) return "sensitive";
  return /^token_embd$|_compressor_(kv|gate)$|^indexer\./.test(name) ? "plain" : "dense";
}

/** First of the last layers whose experts q2-q4 keeps at Q4_K: the last six of 43, in proportion, at least two. */
export function firstLateLayer(layerCount: number): number {
  return Math.max(0, layerCount - Math.max(MIN_LATE_LAYERS, Math.round(layerCount * LATE_SHARE)));
}

/**
 * The type of a tensor of a model with `layerCount` layers. `lateLayer` is the first layer whose experts q2-q4 keeps
 * at Q4_K.
 */
export function recipeType(
  recipe: Recipe,
  tensorName: string,
  layerCount: number,
  lateLayer = firstLateLayer(layerCount),
): GgmlType {
  const kind = tensorClass(tensorName);
  if (recipe === "q2-q4" && (kind === "expert-gate-up" || kind === "expert-down")) {
    const layer = Number(/^blk\.(\d+)\./.exec(tensorName)?.[1] ?? -1);
    if (layer >= lateLayer) return "Q4_K";
  }
  return TYPES[recipe][kind];
}

/** `wanted`, or where a row of `rowValues` is no multiple of its block Q8_0, or else F16. */
export function fittingType(wanted: GgmlType, rowValues: number): GgmlType {
  const fits = (type: GgmlType) => rowValues % ggmlType(type).blockValues === 0;
  return fits(wanted) ? wanted : fits("Q8_0") ? "Q8_0" : "F16";
}
