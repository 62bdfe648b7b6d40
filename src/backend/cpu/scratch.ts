// The activations of one forward pass, allocated once for the largest batch. Sizes are bounded by the batch, not by the
// context. Names follow the reference backend's.
import type { ModelSpec } from "../../model/model-spec.ts";
import { compressorWidth } from "../../model/weights.ts";

/** All arrays are row-major over tokens; the first `tokens` rows of a call are valid. */
export interface Scratch {
  streams: Float32Array; // [tokens, n, hidden]
  x: Float32Array; // [tokens, hidden]: a block's normed input
  blockOut: Float32Array; // [tokens, hidden]
  post: Float32Array; // [tokens, n]
  comb: Float32Array; // [tokens, n, n]
  queryRank: Float32Array; // [tokens, queryLoraRank]
  q: Float32Array; // [tokens, heads, headDim]
  mixed: Float32Array; // [tokens, heads, headDim]
  kv: Float32Array; // [tokens, headDim]
  low: Float32Array; // [tokens, groups, outputLoraRank]
  compressorKv: Float32Array; // [tokens, projected]
  compressorGate: Float32Array;
  indexerKv: Float32Array;
  indexerGate: Float32Array;
  indexerQueries: Float32Array; // [tokens, indexerHeads, indexerHeadDim]
  indexerHeads: Float32Array; // [tokens, indexerHeads]
  selected: Int32Array; // [tokens, topK]
  selectedCounts: Int32Array; // [tokens]
  routerLogits: Float32Array; // [tokens, experts]
  expertIds: Int32Array; // [tokens, used]
  expertWeights: Float32Array; // [tokens, used]
  h: Float32Array; // [tokens * used, expertHidden], rows grouped by expert
  sharedH: Float32Array; // [tokens, shared * expertHidden]
  /** Angles of sliding-only layers and of compressed ones: [tokens, pairs]. */
  plainCosines: Float32Array;
  plainSines: Float32Array;
  stretchedCosines: Float32Array;
  stretchedSines: Float32Array;
}

/** Values per token of each array. */
function valuesPerToken(spec: ModelSpec): Record<keyof Scratch, number> {
  const { hyperCount: n, hiddenSize: hidden, headDim, expertUsedCount: used } = spec;
  const heads = spec.headCount * headDim;
  const pairs = spec.rope.dims / 2;
  const ratios = spec.layers.map((layer) => layer.compressRatio).filter((ratio) => ratio > 0);
  const widest = (width: number) =>
    ratios.reduce((most, ratio) => Math.max(most, compressorWidth(width, ratio)), 0);
  const indexed = spec.layers.some((layer) => layer.hasIndexer);
  const indexerProjected = indexed ? widest(spec.indexerHeadDim) : 0;
  return {
    streams: n * hidden,
    x: hidden,
    blockOut: hidden,
    post: n,
    comb: n * n,
    queryRank: spec.queryLoraRank,
    q: heads,
    mixed: heads,
    kv: headDim,
    low: spec.outputGroupCount * spec.outputLoraRank,
    compressorKv: widest(headDim),
    compressorGate: widest(headDim),
    indexerKv: indexerProjected,
    indexerGate: indexerProjected,
    indexerQueries: indexed ? spec.indexerHeadCount * spec.indexerHeadDim : 0,
    indexerHeads: indexed ? spec.indexerHeadCount : 0,
    selected: indexed ? spec.indexerTopK : 0,
    selectedCounts: indexed ? 1 : 0,
    routerLogits: spec.expertCount,
    expertIds: used,
    expertWeights: used,
    h: used * spec.expertHiddenSize,
    sharedH: spec.expertSharedCount * spec.expertHiddenSize,
    plainCosines: pairs,
    plainSines: pairs,
    stretchedCosines: pairs,
    stretchedSines: pairs,
  };
}

const INTEGER_ARRAYS: readonly (keyof Scratch)[] = ["selected", "selectedCounts", "expertIds"];

/** Bytes that `allocateScratch` takes. */
export function scratchBytes(spec: ModelSpec, maxBatchTokens: number): number {
  const perToken = Object.values(valuesPerToken(spec)).reduce((sum, values) => sum + values, 0);
  return 4 * maxBatchTokens * perToken;
}

/** Allocates all arrays for batches of up to `maxBatchTokens`. Throws RangeError when there is no memory. */
export function allocateScratch(spec: ModelSpec, maxBatchTokens: number): Scratch {
  const entries = Object.entries(valuesPerToken(spec)).map(([name, values]) => {
    const count = values * maxBatchTokens;
    const integer = INTEGER_ARRAYS.includes(name as keyof Scratch);
    return [name, integer ? new Int32Array(count) : new Float32Array(count)];
  });
  return Object.fromEntries(entries) as unknown as Scratch;
}
