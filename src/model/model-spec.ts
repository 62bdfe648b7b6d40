// What a DeepSeek-V4-shaped model is, in numbers: read from metadata once, then plain data. Nothing here is
// fixed to one shape; V4-Flash's own values stand in the comments.

/** One transformer layer's kind. */
export interface LayerSpec {
  index: number;
  /** 0: sliding window only; otherwise tokens per compressed entry (4 or 128). */
  compressRatio: number;
  /** Ratio-4 layers choose their compressed entries with an indexer. */
  hasIndexer: boolean;
  /** Experts come from the token id (`tid2eid`) instead of the router's top-k. */
  hashRouted: boolean;
  /** Upper clamp of the gate and symmetric clamp of up, routed and shared experts (10). */
  swigluClampExperts: number;
  swigluClampShared: number;
}

/** Rotary embedding with or without YaRN. Sources: GGUF keys `rope.*`, `attention.compress_rope_freq_base`. */
export interface RopeSpec {
  /** Rotated dims at the END of each head (64), interleaved pairs. */
  dims: number;
  /** Base of sliding-only layers (10000), no scaling. */
  freqBase: number;
  /** Base of compressed layers (160000), with YaRN. */
  compressFreqBase: number;
  /** YaRN; factor 1 means no scaling. */
  yarnFactor: number;
  yarnOriginalContext: number;
  yarnBetaFast: number;
  yarnBetaSlow: number;
}

/** All hyperparameters of a model. */
export interface ModelSpec {
  architecture: "deepseek4";
  name: string;
  layerCount: number;
  /** Trained context length in tokens. */
  contextTokens: number;
  /** Width of one residual stream (4096). */
  hiddenSize: number;
  vocabSize: number;
  headCount: number;
  /** Key = value width of the single KV head (512). */
  headDim: number;
  queryLoraRank: number;
  outputLoraRank: number;
  outputGroupCount: number;
  /** Window in tokens, own position included (128). */
  slidingWindow: number;
  indexerHeadCount: number;
  indexerHeadDim: number;
  indexerTopK: number;
  normEpsilon: number;
  rope: RopeSpec;
  expertCount: number;
  expertUsedCount: number;
  expertSharedCount: number;
  /** Inner width of one routed expert (2048). */
  expertHiddenSize: number;
  expertWeightsScale: number;
  expertWeightsNorm: boolean;
  hashLayerCount: number;
  /** Residual streams (4). */
  hyperCount: number;
  sinkhornIterations: number;
  hyperEpsilon: number;
  layers: readonly LayerSpec[];
}
