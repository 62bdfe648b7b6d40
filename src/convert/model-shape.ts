// Every tensor of a DeepSeek-V4-shaped model by name, dims and order, from its numbers alone; and the two shapes that
// this project knows by name. Pure: what a converter or a planner writes, without any weights.
import type { LayerSpec, ModelSpec } from "../model/model-spec.ts";
import { compressorWidth } from "../model/weights.ts";

/** A tensor without its type: dims fastest first. */
export interface ShapedTensor {
  name: string;
  dims: readonly number[];
}

/** Shapes known by name. */
export const SHAPE_NAMES = ["flash", "nano"] as const;

/** Name of a known shape: V4-Flash, or the bundled nano model. */
export type ShapeName = (typeof SHAPE_NAMES)[number];

/** Layers of both shapes: two sliding only, then ratio 4 on even and 128 on odd layers. */
function familyLayers(layerCount: number, hashLayerCount: number): LayerSpec[] {
  return Array.from({ length: layerCount }, (_, index) => {
    const compressRatio = index < 2 ? 0 : index % 2 === 0 ? 4 : 128;
    return {
      index,
      compressRatio,
      hasIndexer: compressRatio === 4,
      hashRouted: index < hashLayerCount,
      swigluClampExperts: 10,
      swigluClampShared: 10,
    };
  });
}

const ROPE = {
  dims: 64,
  freqBase: 10_000,
  compressFreqBase: 160_000,
  yarnFactor: 16,
  yarnOriginalContext: 65_536,
  yarnBetaFast: 32,
  yarnBetaSlow: 1,
};

/** What V4-Flash and nano have in common. */
const FAMILY = {
  architecture: "deepseek4",
  headDim: 512,
  indexerHeadDim: 128,
  normEpsilon: Math.fround(1e-6), // files hold float32
  expertUsedCount: 6,
  expertSharedCount: 1,
  expertWeightsScale: 1.5,
  expertWeightsNorm: true,
  hashLayerCount: 3,
  hyperCount: 4,
  sinkhornIterations: 20,
  hyperEpsilon: Math.fround(1e-6),
} as const;

const SHAPES: Readonly<Record<ShapeName, ModelSpec>> = {
  flash: {
    ...FAMILY,
    name: "DeepSeek V4 Flash",
    layerCount: 43,
    contextTokens: 1_048_576,
    hiddenSize: 4096,
    vocabSize: 129_280,
    headCount: 64,
    queryLoraRank: 1024,
    outputLoraRank: 1024,
    outputGroupCount: 8,
    slidingWindow: 128,
    indexerHeadCount: 64,
    indexerTopK: 512,
    rope: ROPE,
    expertCount: 256,
    expertHiddenSize: 2048,
    layers: familyLayers(43, FAMILY.hashLayerCount),
  },
  nano: {
    ...FAMILY,
    name: "nano",
    layerCount: 6,
    contextTokens: 65_536,
    hiddenSize: 256,
    vocabSize: 4096,
    headCount: 4,
    queryLoraRank: 128,
    outputLoraRank: 64,
    outputGroupCount: 2,
    slidingWindow: 64,
    indexerHeadCount: 4,
    indexerTopK: 32,
    rope: { ...ROPE, yarnOriginalContext: 4096 },
    expertCount: 16,
    expertHiddenSize: 256,
    layers: familyLayers(6, FAMILY.hashLayerCount),
  },
};

/** The numbers of a known shape. Shared: do not change them. */
export function shapeSpec(name: ShapeName): ModelSpec {
  return SHAPES[name];
}

/** The first `layerCount` layers (1 to the model's own count) of a shape, everything else the same. */
export function firstLayers(spec: ModelSpec, layerCount: number): ModelSpec {
  const layers = spec.layers.slice(0, layerCount);
  return { ...spec, layerCount, hashLayerCount: Math.min(spec.hashLayerCount, layerCount), layers };
}

/** Every tensor of a model, in the order in which files are written: embedding and head first, then layer by layer. */
export function modelTensors(spec: ModelSpec): ShapedTensor[] {
  const { hiddenSize, hyperCount, vocabSize } = spec;
  return [
    { name: "token_embd.weight", dims: [hiddenSize, vocabSize] },
    { name: "output_hc_base.weight", dims: [hyperCount] },
    { name: "output_hc_fn.weight", dims: [hyperCount * hiddenSize, hyperCount] },
    { name: "output_hc_scale.weight", dims: [1] },
    { name: "output_norm.weight", dims: [hiddenSize] },
    { name: "output.weight", dims: [hiddenSize, vocabSize] },
    ...spec.layers.flatMap((layer) => layerTensors(spec, layer)),
  ];
}

function layerTensors(spec: ModelSpec, layer: LayerSpec): ShapedTensor[] {
  const names: [name: string, dims: number[]][] = [
    ...hyperTensors(spec, "hc_attn"),
    ...attentionTensors(spec),
    ...(layer.compressRatio === 0
      ? []
      : compressorTensors(spec, "attn_compressor", spec.headDim, layer.compressRatio)),
    ...(layer.hasIndexer ? indexerTensors(spec, layer.compressRatio) : []),
    ...hyperTensors(spec, "hc_ffn"),
    ...expertTensors(spec, layer),
  ];
  return names.map(([name, dims]) => ({ name: `blk.${layer.index}.${name}`, dims }));
}

function hyperTensors(spec: ModelSpec, prefix: string): [string, number[]][] {
  const rows = 2 * spec.hyperCount + spec.hyperCount ** 2; // read, write and mixing coefficients
  return [
    [`${prefix}_fn.weight`, [spec.hyperCount * spec.hiddenSize, rows]],
    [`${prefix}_scale.weight`, [3]],
    [`${prefix}_base.weight`, [rows]],
  ];
}

function attentionTensors(spec: ModelSpec): [string, number[]][] {
  const { hiddenSize, headCount, headDim, queryLoraRank, outputLoraRank, outputGroupCount } = spec;
  return [
    ["attn_norm.weight", [hiddenSize]],
    ["attn_q_a.weight", [hiddenSize, queryLoraRank]],
    ["attn_q_a_norm.weight", [queryLoraRank]],
    ["attn_q_b.weight", [queryLoraRank, headCount * headDim]],
    ["attn_kv.weight", [hiddenSize, headDim]],
    ["attn_kv_a_norm.weight", [headDim]],
    ["attn_sinks.weight", [headCount]],
    ["attn_output_a.weight", [(headCount / outputGroupCount) * headDim, outputGroupCount * outputLoraRank]],
    ["attn_output_b.weight", [outputGroupCount * outputLoraRank, hiddenSize]],
  ];
}

function compressorTensors(
  spec: ModelSpec,
  prefix: string,
  width: number,
  ratio: number,
): [string, number[]][] {
  const columns = compressorWidth(width, ratio);
  return [
    [`${prefix}_ape.weight`, [columns, ratio]],
    [`${prefix}_kv.weight`, [spec.hiddenSize, columns]],
    [`${prefix}_gate.weight`, [spec.hiddenSize, columns]],
    [`${prefix}_norm.weight`, [width]],
  ];
}

function indexerTensors(spec: ModelSpec, ratio: number): [string, number[]][] {
  return [
    ["indexer.attn_q_b.weight", [spec.queryLoraRank, spec.indexerHeadCount * spec.indexerHeadDim]],
    ["indexer.proj.weight", [spec.hiddenSize, spec.indexerHeadCount]],
    ...compressorTensors(spec, "indexer_compressor", spec.indexerHeadDim, ratio),
  ];
}

function expertTensors(spec: ModelSpec, layer: LayerSpec): [string, number[]][] {
  const { hiddenSize, expertHiddenSize: inner, expertCount } = spec;
  const sharedInner = spec.expertSharedCount * inner;
  return [
    ["ffn_norm.weight", [hiddenSize]],
    ["ffn_gate_inp.weight", [hiddenSize, expertCount]],
    layer.hashRouted
      ? ["ffn_gate_tid2eid.weight", [spec.expertUsedCount, spec.vocabSize]]
      : ["exp_probs_b.bias", [expertCount]],
    ["ffn_gate_exps.weight", [hiddenSize, inner, expertCount]],
    ["ffn_up_exps.weight", [hiddenSize, inner, expertCount]],
    ["ffn_down_exps.weight", [inner, hiddenSize, expertCount]],
    ["ffn_gate_shexp.weight", [hiddenSize, sharedInner]],
    ["ffn_up_shexp.weight", [hiddenSize, sharedInner]],
    ["ffn_down_shexp.weight", [sharedInner, hiddenSize]],
  ];
}
