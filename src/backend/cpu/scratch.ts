// The activations of one forward pass, allocated once for the largest batch. Sizes are bounded by the batch, not by the
// context. Names follow the reference backend's.
import type { ModelSpec } from "../../model/model-spec.ts";
import { scratchValuesPerToken } from "../../plan/scratch-size.ts";
import { residentFloats, residentInts } from "./resident-array.ts";

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

const INTEGER_ARRAYS: readonly (keyof Scratch)[] = ["selected", "selectedCounts", "expertIds"];

/** Allocates all arrays for batches of up to `maxBatchTokens`. Throws RangeError when there is no memory. */
export function allocateScratch(spec: ModelSpec, maxBatchTokens: number): Scratch {
  const perToken: Record<keyof Scratch, number> = scratchValuesPerToken(spec);
  const entries = Object.entries(perToken).map(([name, values]) => {
    const count = values * maxBatchTokens;
    const integer = INTEGER_ARRAYS.includes(name as keyof Scratch);
    return [name, integer ? residentInts(count) : residentFloats(count)];
  });
  return Object.fromEntries(entries) as unknown as Scratch;
}
