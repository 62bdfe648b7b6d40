// Sizes of the activations of one forward pass: bounded by the batch, never by the context. The backend allocates
// exactly these, the plan counts exactly these.
import type { ModelSpec } from "../model/model-spec.ts";
import { compressorWidth } from "../model/weights.ts";

/** Tokens per call of the CPU backend by default: enough that every expert is read once for many tokens. */
export const CPU_BATCH_TOKENS = 512;

/** Tokens per call planned for CUDA: ds4's own chunk. */
export const CUDA_BATCH_TOKENS = 2048;

/** Flag and candidates of 64 rows. */
const CUDA_CANDIDATE_BYTES = 132_112;

/** Values per token of each array; see the backend's `Scratch` for what they hold. */
export function scratchValuesPerToken(spec: ModelSpec) {
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

/** Values per row of the output head's buffers; rows are the tokens whose logits are wanted at once. */
export function headValuesPerRow(spec: ModelSpec) {
  const { hyperCount, hiddenSize, vocabSize } = spec;
  return { streams: hyperCount * hiddenSize, x: hiddenSize, logits: vocabSize };
}

/**
 * Bytes of the host memory that results of the CUDA backend come back to: its error flag and candidates (`resultBytes` of
 * backend/cuda/top-logits-steps.ts), and a row of logits for each sequence that may want one.
 */
export function cudaResultBytes(spec: ModelSpec, sequences: number): number {
  return CUDA_CANDIDATE_BYTES + 4 * sequences * spec.vocabSize;
}

/** Bytes of the activations for batches of up to `batchTokens`. All values take four bytes. */
export function scratchBytes(spec: ModelSpec, batchTokens: number): number {
  return 4 * batchTokens * sum(scratchValuesPerToken(spec));
}

/** Bytes of the output head's buffers for `rows` wanted rows. */
export function headBytes(spec: ModelSpec, rows: number): number {
  return 4 * rows * sum(headValuesPerRow(spec));
}

function sum(values: Record<string, number>): number {
  return Object.values(values).reduce((total, value) => total + value, 0);
}
