// Recipes: which tensor type each tensor of a model gets. Pure rules by tensor name, the same for files made from a
// checkpoint, re-quantized files and synthetic ones. q2, q2-q4 and q4 are the published ds4 files' tables; mxfp4 is
// what llama.cpp's converter writes.
import type { GgmlType } from "../blocks/ggml-types.ts";

/** Names of the recipes, smallest loss first. */
export const RECIPES = ["f32", "q8", "mxfp4", "q4", "q2-q4", "q2"] as const;

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
  /** Hyper-connection projections and the compressors' position tables: small and sensitive. */
  | "sensitive"
  /** The indexer's query projection: F16 in ds4 files, Q8_0 in llama.cpp's. */
  | "indexer-query"
  /** The output head: Q8_0 in ds4 files, BF16 in llama.cpp's. */
  | "head"
  /** Embedding, router, compressor and indexer projections. */
  | "plain"
  /** Attention projections and the shared expert. */
  | "dense";

/** Most layers whose experts q2-q4 keeps at four bits: the last six of V4-Flash's 43. */
const MAX_LATE_LAYERS = 6;

const DS4_TYPES: Readonly<Record<TensorClass, GgmlType>> = {
  vector: "F32",
  index: "I32",
  "expert-gate-up": "IQ2_XXS",
  "expert-down": "Q2_K",
  sensitive: "F16",
  "indexer-query": "F16",
  head: "Q8_0",
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
  "indexer-query": "F32",
  head: "F32",
  plain: "F32",
  dense: "F32",
};

const MAINLINE_TYPES: Readonly<Record<TensorClass, GgmlType>> = {
  ...withExperts("MXFP4"),
  sensitive: "F32",
  "indexer-query": "Q8_0",
  head: "BF16",
  plain: "BF16",
};

const TYPES: Readonly<Record<Recipe, Readonly<Record<TensorClass, GgmlType>>>> = {
  f32: ALL_FLOAT,
  q8: withExperts("Q8_0"),
  mxfp4: MAINLINE_TYPES,
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

/** Sorts a tensor by its name in the file. Unknown names of matrices count as dense. */
export function tensorClass(tensorName: string): TensorClass {
  const name = tensorName.replace(/^blk\.\d+\./, "").replace(/\.(weight|bias)$/, "");
  if (name === "ffn_gate_tid2eid") return "index";
  if (name === "ffn_gate_exps" || name === "ffn_up_exps") return "expert-gate-up";
  if (name === "ffn_down_exps") return "expert-down";
  if (/(^|_)norm$|^attn_sinks$|^exp_probs_b$|hc_(attn_|ffn_)?(base|scale)$/.test(name)) return "vector";
  if (/hc_(attn_|ffn_)?fn$|_compressor_ape$/.test(name)) return "sensitive";
  if (name === "indexer.attn_q_b") return "indexer-query";
  if (name === "output") return "head";
  if (name === "token_embd" || name === "ffn_gate_inp") return "plain";
  return /_compressor_(kv|gate)$|^indexer\.proj$/.test(name) ? "plain" : "dense";
}

/** First of the last layers whose experts q2-q4 keeps at Q4_K: six of them, but never more than half of the model. */
export function firstLateLayer(layerCount: number): number {
  return layerCount - Math.min(MAX_LATE_LAYERS, Math.floor(layerCount / 2));
}

/** The type of a tensor of a model with `layerCount` layers. */
export function recipeType(recipe: Recipe, tensorName: string, layerCount: number): GgmlType {
  const kind = tensorClass(tensorName);
  if (recipe === "q2-q4" && (kind === "expert-gate-up" || kind === "expert-down")) {
    const layer = Number(/^blk\.(\d+)\./.exec(tensorName)?.[1] ?? -1);
    if (layer >= firstLateLayer(layerCount)) return "Q4_K";
  }
  return TYPES[recipe][kind];
}
