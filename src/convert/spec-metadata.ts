// The metadata that describes a model's numbers, under the keys of published files: the inverse of
// model/spec-reader.ts.
import type { MetadataValue } from "../gguf/gguf-file.ts";
import type { ModelSpec } from "../model/model-spec.ts";

/** What the file says besides the numbers. */
export interface SpecMetadataOptions {
  /** ggml's number of the file's main type. */
  fileType: number;
  /**
   * Draft blocks that the checkpoint has beside its layers: written as `nextn_predict_layers`, with one compress
   * ratio of 0 each, although no tensors of theirs are in the file. Published V4-Flash files do so. Default 0.
   */
  draftLayerCount?: number;
}

const u32 = (value: number): MetadataValue => ({ type: "u32", value });
const f32 = (value: number): MetadataValue => ({ type: "f32", value });
const text = (value: string): MetadataValue => ({ type: "string", value });

/** All `general.*` and `deepseek4.*` keys of a model, in file order. Tokenizer keys are not among them. */
export function specMetadata(spec: ModelSpec, options: SpecMetadataOptions): Map<string, MetadataValue> {
  const draftLayerCount = options.draftLayerCount ?? 0;
  const ratios = [...spec.layers.map((layer) => layer.compressRatio), ...new Array(draftLayerCount).fill(0)];
  const entries: [key: string, value: MetadataValue][] = [
    ["block_count", u32(spec.layerCount)],
    ["context_length", u32(spec.contextTokens)],
    ["embedding_length", u32(spec.hiddenSize)],
    ["vocab_size", u32(spec.vocabSize)],
    ["attention.head_count", u32(spec.headCount)],
    ["attention.head_count_kv", u32(1)],
    ["attention.key_length", u32(spec.headDim)],
    ["attention.value_length", u32(spec.headDim)],
    ["attention.layer_norm_rms_epsilon", f32(spec.normEpsilon)],
    ["attention.q_lora_rank", u32(spec.queryLoraRank)],
    ["attention.output_lora_rank", u32(spec.outputLoraRank)],
    ["attention.output_group_count", u32(spec.outputGroupCount)],
    ["attention.sliding_window", u32(spec.slidingWindow)],
    ["attention.compress_ratios", { type: "array", elementType: "i32", values: Int32Array.from(ratios) }],
    ["attention.compress_rope_freq_base", f32(spec.rope.compressFreqBase)],
    ["attention.indexer.head_count", u32(spec.indexerHeadCount)],
    ["attention.indexer.key_length", u32(spec.indexerHeadDim)],
    ["attention.indexer.top_k", u32(spec.indexerTopK)],
    ...ropeEntries(spec),
    ["expert_count", u32(spec.expertCount)],
    ["expert_used_count", u32(spec.expertUsedCount)],
    ["expert_shared_count", u32(spec.expertSharedCount)],
    ["expert_feed_forward_length", u32(spec.expertHiddenSize)],
    ["expert_weights_scale", f32(spec.expertWeightsScale)],
    ["expert_weights_norm", { type: "bool", value: spec.expertWeightsNorm }],
    ["expert_gating_func", u32(4)], // sqrt of softplus, the family's only one
    ["hash_layer_count", u32(spec.hashLayerCount)],
    ["swiglu_clamp_exp", clamps(spec.layers.map((layer) => layer.swigluClampExperts))],
    ["swiglu_clamp_shexp", clamps(spec.layers.map((layer) => layer.swigluClampShared))],
    ["hyper_connection.count", u32(spec.hyperCount)],
    ["hyper_connection.sinkhorn_iterations", u32(spec.sinkhornIterations)],
    ["hyper_connection.epsilon", f32(spec.hyperEpsilon)],
  ];
  if (draftLayerCount > 0) entries.push(["nextn_predict_layers", u32(draftLayerCount)]);
  return new Map<string, MetadataValue>([
    ["general.architecture", text(spec.architecture)],
    ["general.name", text(spec.name)],
    ["general.file_type", u32(options.fileType)],
    ["general.quantization_version", u32(2)],
    ...entries.map(([key, value]): [string, MetadataValue] => [`${spec.architecture}.${key}`, value]),
  ]);
}

function ropeEntries({ rope }: ModelSpec): [string, MetadataValue][] {
  const base: [string, MetadataValue][] = [
    ["rope.dimension_count", u32(rope.dims)],
    ["rope.freq_base", f32(rope.freqBase)],
    ["rope.scaling.type", text(rope.yarnFactor === 1 ? "none" : "yarn")],
  ];
  if (rope.yarnFactor === 1) return base;
  return [
    ...base,
    ["rope.scaling.factor", f32(rope.yarnFactor)],
    ["rope.scaling.original_context_length", u32(rope.yarnOriginalContext)],
    ["rope.scaling.yarn_beta_fast", f32(rope.yarnBetaFast)],
    ["rope.scaling.yarn_beta_slow", f32(rope.yarnBetaSlow)],
  ];
}

/** Infinity, no clamp, is written as 0. */
function clamps(limits: readonly number[]): MetadataValue {
  const values = Float32Array.from(limits, (limit) => (Number.isFinite(limit) ? limit : 0));
  return { type: "array", elementType: "f32", values };
}
