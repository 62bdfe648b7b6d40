// A checkpoint's config.json in the official layout: what the converter needs, every value checked. Whatever would
// change the mathematics in a way that the engine does not know is refused here.
import { Ds4Error } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { LayerSpec, ModelSpec, RopeSpec } from "../model/model-spec.ts";
import type { JsonReader } from "./json-file.ts";

const MAX_LAYERS = 1024;
const MAX_COUNT = 2 ** 20;
const MAX_VOCAB = 2 ** 22;
const MAX_CONTEXT = 2 ** 24;
/** Layers of this ratio choose their compressed entries with an indexer. */
const INDEXED_RATIO = 4;
/** What the engine implements. */
const KNOWN_RATIOS: readonly number[] = [0, INDEXED_RATIO, 128];

/** What config.json says. */
export interface ModelConfig {
  spec: ModelSpec;
  /** Draft blocks that the checkpoint has beside its layers; they are not converted. */
  draftLayerCount: number;
}

/**
 * Reads the config of a model to be called `name`. Throws `unsupported-model` for another architecture, `convert` for
 * a value that does not fit.
 */
export function readModelConfig(config: JsonReader, name: string): ModelConfig {
  refuseOtherModels(config);
  refuseOtherMathematics(config);
  const count = (key: string, max = MAX_COUNT) => config.integer(key, 1, max);
  const layerCount = count("num_hidden_layers", MAX_LAYERS);
  const hashLayerCount = config.integer("num_hash_layers", 0, layerCount);
  const spec: ModelSpec = {
    ...{ architecture: "deepseek4", name, layerCount, hashLayerCount },
    contextTokens: count("max_position_embeddings", MAX_CONTEXT),
    hiddenSize: count("hidden_size"),
    vocabSize: count("vocab_size", MAX_VOCAB),
    headCount: count("num_attention_heads"),
    headDim: count("head_dim"),
    queryLoraRank: count("q_lora_rank"),
    outputLoraRank: count("o_lora_rank"),
    outputGroupCount: count("o_groups"),
    slidingWindow: count("sliding_window"),
    indexerHeadCount: count("index_n_heads"),
    indexerHeadDim: count("index_head_dim"),
    indexerTopK: count("index_topk"),
    normEpsilon: config.real("rms_norm_eps"),
    rope: readRope(config),
    expertCount: count("n_routed_experts"),
    expertUsedCount: count("num_experts_per_tok"),
    expertSharedCount: count("n_shared_experts"),
    expertHiddenSize: count("moe_intermediate_size"),
    expertWeightsScale: config.real("routed_scaling_factor"),
    expertWeightsNorm: config.flag("norm_topk_prob"),
    hyperCount: count("hc_mult"),
    sinkhornIterations: count("hc_sinkhorn_iters"),
    hyperEpsilon: config.real("hc_eps"),
    layers: readLayers(config, layerCount, hashLayerCount),
  };
  const drafts = "num_nextn_predict_layers";
  return { spec, draftLayerCount: config.has(drafts) ? config.integer(drafts, 0, MAX_LAYERS) : 0 };
}

/** `compress_ratios` has an entry a layer, then one a draft block. */
function readLayers(config: JsonReader, layerCount: number, hashLayerCount: number): LayerSpec[] {
  const ratios = config.integers("compress_ratios", 2 * MAX_LAYERS);
  if (ratios.length < layerCount) {
    throw config.fail("compress_ratios", `at least ${layerCount} entries, one a layer`);
  }
  if (!ratios.slice(0, layerCount).every((ratio) => KNOWN_RATIOS.includes(ratio))) {
    throw config.fail("compress_ratios", `${KNOWN_RATIOS.join(", ")} for each layer`);
  }
  const limit = config.real("swiglu_limit");
  const clamp = limit === 0 ? Number.POSITIVE_INFINITY : limit;
  return ratios.slice(0, layerCount).map((compressRatio, index) => ({
    index,
    compressRatio,
    hasIndexer: compressRatio === INDEXED_RATIO,
    hashRouted: index < hashLayerCount,
    swigluClampExperts: clamp,
    swigluClampShared: clamp,
  }));
}

function refuseOtherModels(config: JsonReader): void {
  const architectures = config.get("architectures");
  const found = Array.isArray(architectures) ? String(architectures[0]) : String(config.get("model_type"));
  if (found === "DeepseekV4ForCausalLM" || found === "deepseek_v4") return;
  const hint = /V4_?1/i.test(found) ? " V4.1 has other layers (shared indexes, Engram tables)." : "";
  throw new Ds4Error(
    "unsupported-model",
    `${config.path}: expected the architecture "DeepseekV4ForCausalLM", found ${quotedText(found)}.${hint}`,
  );
}

function refuseOtherMathematics(config: JsonReader): void {
  config.oneOf("scoring_func", ["sqrtsoftplus"]);
  if (config.has("hidden_act")) config.oneOf("hidden_act", ["silu"]);
  if (config.has("tie_word_embeddings")) config.oneOf("tie_word_embeddings", [false]);
  if (config.has("num_key_value_heads")) config.integer("num_key_value_heads", 1, 1);
  if (!config.has("quantization_config")) return;
  const quantization = config.object("quantization_config");
  if (!quantization.has("weight_block_size")) return;
  if (quantization.integers("weight_block_size", 2).join() !== "128,128") {
    throw quantization.fail("weight_block_size", "[128, 128]");
  }
}

function readRope(config: JsonReader): RopeSpec {
  const base = {
    dims: config.integer("qk_rope_head_dim", 2, MAX_COUNT),
    freqBase: config.real("rope_theta"),
    compressFreqBase: config.real("compress_rope_theta"),
  };
  if (!config.has("rope_scaling")) {
    return { ...base, yarnFactor: 1, yarnOriginalContext: MAX_CONTEXT, yarnBetaFast: 32, yarnBetaSlow: 1 };
  }
  const scaling = config.object("rope_scaling");
  scaling.oneOf(scaling.has("type") ? "type" : "rope_type", ["yarn"]);
  return {
    ...base,
    yarnFactor: scaling.real("factor", 1),
    yarnOriginalContext: scaling.integer("original_max_position_embeddings", 1, MAX_CONTEXT),
    yarnBetaFast: scaling.real("beta_fast"),
    yarnBetaSlow: scaling.real("beta_slow"),
  };
}
