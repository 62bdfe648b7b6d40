// From GGUF metadata to a `ModelSpec`: every hyperparameter that changes the mathematics is required and checked;
// files of other architectures and dialects are refused by name. Reads no weights.

import { UnsupportedModelError } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { refuseOtherDialects } from "./dialects.ts";
import { MetadataReader, type NumberBounds } from "./metadata-reader.ts";
import type { LayerSpec, ModelSpec, RopeSpec } from "./model-spec.ts";

/** More layers than any model of the family (PRO has 61); keeps a hostile file from unbounded loops. */
const MAX_LAYERS = 1024;
/** Widths and counts: V4-PRO's largest is 65536 (heads x head width); products stay exact in a double. */
const MAX_WIDTH = 2 ** 20;
/** Vocabulary entries: V4 has 129280. */
const MAX_VOCAB = 2 ** 22;
/** Context: V4 has 2^20 tokens; positions must stay exact in float32 arithmetic up to 2^24. */
const MAX_CONTEXT = 2 ** 24;
/** Streams: V4 has 4; the mixing matrix grows with the square. */
const MAX_STREAMS = 16;
/** Balancing rounds: V4 has 20; more than this is a broken file, not a model. */
const MAX_SINKHORN = 1000;

/** `expert_gating_func` of sqrt(softplus(x)), the only one this family uses. */
const GATING_SQRT_SOFTPLUS = 4;
/** Ratio whose windows overlap and whose layers have an indexer. */
const INDEXED_RATIO = 4;
const SUPPORTED_RATIOS = [0, INDEXED_RATIO, 128];

const COUNT: NumberBounds = { min: 1, max: MAX_WIDTH };
const POSITIVE: NumberBounds = { min: Number.MIN_VALUE, max: Number.MAX_VALUE };
const EPSILON: NumberBounds = { min: 0, max: 1 };

/**
 * Reads all hyperparameters of a `deepseek4` file. Throws `unsupported-model`, naming the key, when one is
 * missing, out of range or contradicts another, and naming the dialect when the file is of another kind.
 */
export function readModelSpec(file: GgufFile): ModelSpec {
  refuseOtherDialects(file);
  const reader = new MetadataReader(file.metadata, "deepseek4.", file.name);
  const layerCount = readLayerCount(reader, file);
  const spec: ModelSpec = {
    architecture: "deepseek4",
    name: readName(file),
    layerCount,
    contextTokens: reader.integer("context_length", { min: 1, max: MAX_CONTEXT }),
    hiddenSize: reader.integer("embedding_length", COUNT),
    vocabSize: readVocabSize(reader, file),
    headCount: reader.integer("attention.head_count", COUNT),
    headDim: reader.integer("attention.key_length", COUNT),
    queryLoraRank: reader.integer("attention.q_lora_rank", COUNT),
    outputLoraRank: reader.integer("attention.output_lora_rank", COUNT),
    outputGroupCount: reader.integer("attention.output_group_count", COUNT),
    slidingWindow: reader.integer("attention.sliding_window", COUNT),
    indexerHeadCount: reader.integer("attention.indexer.head_count", COUNT),
    indexerHeadDim: reader.integer("attention.indexer.key_length", COUNT),
    indexerTopK: reader.integer("attention.indexer.top_k", COUNT),
    normEpsilon: reader.real("attention.layer_norm_rms_epsilon", EPSILON),
    rope: readRope(reader),
    expertCount: reader.integer("expert_count", COUNT),
    expertUsedCount: reader.integer("expert_used_count", COUNT),
    expertSharedCount: reader.integer("expert_shared_count", COUNT),
    expertHiddenSize: reader.integer("expert_feed_forward_length", COUNT),
    expertWeightsScale: reader.real("expert_weights_scale", POSITIVE),
    expertWeightsNorm: reader.flag("expert_weights_norm"),
    hashLayerCount: reader.integer("hash_layer_count", { min: 0, max: layerCount }),
    hyperCount: reader.integer("hyper_connection.count", { min: 1, max: MAX_STREAMS }),
    sinkhornIterations: reader.integer("hyper_connection.sinkhorn_iterations", { min: 1, max: MAX_SINKHORN }),
    hyperEpsilon: reader.real("hyper_connection.epsilon", EPSILON),
    layers: [],
  };
  spec.layers = readLayers(reader, spec);
  checkConsistency(reader, spec);
  return spec;
}

/** `block_count`, less the draft blocks that some converters count among the layers. */
function readLayerCount(reader: MetadataReader, file: GgufFile): number {
  const blockCount = reader.integer("block_count", { min: 1, max: MAX_LAYERS });
  const draftCount = reader.integerOr("nextn_predict_layers", { min: 0, max: MAX_LAYERS }, 0);
  // Most files state nextn_predict_layers = 1 without holding a draft block: only its tensors tell.
  const lastIsDraft = file.tensors.some((tensor) => tensor.name.startsWith(`blk.${blockCount - 1}.nextn.`));
  return lastIsDraft && draftCount < blockCount ? blockCount - draftCount : blockCount;
}

function readName(file: GgufFile): string {
  const name = file.metadata.get("general.name");
  return name?.type === "string" ? name.value : file.name;
}

/** The key where written, else the token list's length, else the embedding's rows (mainline omits the key). */
function readVocabSize(reader: MetadataReader, file: GgufFile): number {
  const bounds = { min: 1, max: MAX_VOCAB };
  if (reader.has("vocab_size")) return reader.integer("vocab_size", bounds);
  const tokens = file.metadata.get("tokenizer.ggml.tokens");
  const size =
    tokens?.type === "array" ? tokens.values.length : (file.tensor("token_embd.weight")?.dims[1] ?? 0);
  if (size < bounds.min || size > bounds.max) {
    throw reader.fail("vocab_size", "the key, a token list or an embedding", `a vocabulary of ${size}`);
  }
  return size;
}

function readRope(reader: MetadataReader): RopeSpec {
  const scalingKey = "rope.scaling.type";
  const scaling = reader.text(scalingKey);
  if (scaling !== "yarn" && scaling !== "none") {
    throw reader.fail(scalingKey, `"yarn" or "none"`, quotedText(scaling));
  }
  const base = {
    dims: reader.integer("rope.dimension_count", { min: 2, max: MAX_WIDTH }),
    freqBase: reader.real("rope.freq_base", POSITIVE),
    compressFreqBase: reader.real("attention.compress_rope_freq_base", POSITIVE),
  };
  if (scaling === "none") {
    return { ...base, yarnFactor: 1, yarnOriginalContext: MAX_CONTEXT, yarnBetaFast: 32, yarnBetaSlow: 1 };
  }
  return {
    ...base,
    yarnFactor: reader.real("rope.scaling.factor", { min: 1, max: MAX_CONTEXT }),
    yarnOriginalContext: reader.integer("rope.scaling.original_context_length", { min: 1, max: MAX_CONTEXT }),
    yarnBetaFast: reader.real("rope.scaling.yarn_beta_fast", POSITIVE),
    yarnBetaSlow: reader.real("rope.scaling.yarn_beta_slow", POSITIVE),
  };
}

function readLayers(reader: MetadataReader, spec: ModelSpec): LayerSpec[] {
  const ratiosKey = "attention.compress_ratios";
  const clampKey = "swiglu_clamp_exp";
  const ratios = reader.numbers(ratiosKey, spec.layerCount, { min: 0, max: MAX_WIDTH });
  const clamps = { min: 0, max: Number.MAX_VALUE };
  const routed = reader.numbers(clampKey, spec.layerCount, clamps);
  const sharedKey = reader.has("swiglu_clamp_shexp") ? "swiglu_clamp_shexp" : clampKey;
  const shared = reader.numbers(sharedKey, spec.layerCount, clamps);
  return ratios.map((compressRatio, index) => {
    if (!SUPPORTED_RATIOS.includes(compressRatio)) {
      throw reader.fail(ratiosKey, SUPPORTED_RATIOS.join(", "), `${compressRatio} at layer ${index}`);
    }
    return {
      index,
      compressRatio,
      hasIndexer: compressRatio === INDEXED_RATIO,
      hashRouted: index < spec.hashLayerCount,
      swigluClampExperts: clampLimit(routed[index]),
      swigluClampShared: clampLimit(shared[index]),
    };
  });
}

/** The family writes 0 for "not clamped". */
function clampLimit(value: number): number {
  return value === 0 ? Number.POSITIVE_INFINITY : value;
}

/** What one key alone cannot tell: values that contradict each other or name another mathematics. */
function checkConsistency(reader: MetadataReader, spec: ModelSpec): void {
  const gating = reader.integer("expert_gating_func", { min: 0, max: MAX_WIDTH });
  if (gating !== GATING_SQRT_SOFTPLUS) {
    throw reader.fail("expert_gating_func", `${GATING_SQRT_SOFTPLUS} (sqrt of softplus)`, String(gating));
  }
  const kvHeads = reader.integer("attention.head_count_kv", COUNT);
  if (kvHeads !== 1) throw reader.fail("attention.head_count_kv", "1 shared key/value head", String(kvHeads));
  const valueDim = reader.integer("attention.value_length", COUNT);
  if (valueDim !== spec.headDim) {
    throw reader.fail("attention.value_length", `key_length (${spec.headDim})`, String(valueDim));
  }
  const groups = reader.integerOr("expert_group_count", { min: 0, max: MAX_WIDTH }, 0);
  if (groups > 1) throw reader.fail("expert_group_count", "no expert groups (0)", String(groups));
  if (spec.expertUsedCount > spec.expertCount) {
    const limit = `at most expert_count (${spec.expertCount})`;
    throw reader.fail("expert_used_count", limit, String(spec.expertUsedCount));
  }
  if (spec.headCount % spec.outputGroupCount !== 0) {
    const expected = `a divisor of attention.head_count (${spec.headCount})`;
    throw reader.fail("attention.output_group_count", expected, String(spec.outputGroupCount));
  }
  const narrowest = Math.min(spec.headDim, spec.indexerHeadDim);
  if (spec.rope.dims % 2 !== 0 || spec.rope.dims > narrowest) {
    const expected = `an even number up to the narrowest head (${narrowest})`;
    throw reader.fail("rope.dimension_count", expected, String(spec.rope.dims));
  }
  if (spec.headCount * spec.headDim > MAX_WIDTH) {
    throw new UnsupportedModelError(
      `${spec.name}: ${spec.headCount} heads of ${spec.headDim} exceed the supported ${MAX_WIDTH} values`,
    );
  }
}
