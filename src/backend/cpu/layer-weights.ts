// The loaded weights by role, looked up once so that the forward pass touches no maps.
import type { LayerSpec, ModelSpec } from "../../model/model-spec.ts";
import type { BoundLayer, BoundModel, CompressorTensors, HyperTensors } from "../../model/weights.ts";
import type { ResidentWeights } from "../../residency/load-weights.ts";
import type { WeightMatrix } from "../native-kernels.ts";

/** A matrix with the name it has in the file. */
export interface NamedMatrix {
  name: string;
  matrix: WeightMatrix;
}

/** Weights of one hyper-connection read; shapes as in `HyperTensors`. */
export interface HyperWeights {
  fn: WeightMatrix;
  base: Float32Array;
  scale: Float32Array;
}

/** Weights of one compressor; shapes as in `CompressorTensors`. */
export interface CompressorWeights {
  kv: NamedMatrix;
  gate: NamedMatrix;
  ape: Float32Array;
  norm: Float32Array;
}

/** One layer; shapes as in `BoundLayer`. */
export interface LayerWeights {
  spec: LayerSpec;
  hcAttn: HyperWeights;
  hcFfn: HyperWeights;
  attnNorm: Float32Array;
  qA: NamedMatrix;
  qANorm: Float32Array;
  qB: NamedMatrix;
  kv: NamedMatrix;
  kvNorm: Float32Array;
  sinks: Float32Array;
  outA: NamedMatrix;
  outB: NamedMatrix;
  compressor?: CompressorWeights;
  indexer?: { proj: NamedMatrix; qB: NamedMatrix; compressor: CompressorWeights };
  ffnNorm: Float32Array;
  router: NamedMatrix;
  table: Int32Array | null;
  bias: Float32Array | null;
  gateExps: NamedMatrix;
  upExps: NamedMatrix;
  downExps: NamedMatrix;
  gateShared: NamedMatrix;
  upShared: NamedMatrix;
  downShared: NamedMatrix;
}

/** The whole model. */
export interface ModelWeights {
  spec: ModelSpec;
  embedding: WeightMatrix;
  head: NamedMatrix;
  outputNorm: Float32Array;
  outputHc: HyperWeights;
  layers: readonly LayerWeights[];
}

/** Looks every role up. */
export function modelWeights(model: BoundModel, resident: ResidentWeights): ModelWeights {
  return {
    spec: model.spec,
    embedding: resident.matrix(model.embedding),
    head: { name: model.head.name, matrix: resident.matrix(model.head) },
    outputNorm: resident.floats(model.outputNorm),
    outputHc: hyperWeights(model.outputHc, resident),
    layers: model.layers.map((layer) => layerWeights(layer, resident)),
  };
}

const MATRIX_ROLES = [
  ...(["qA", "qB", "kv", "outA", "outB", "router"] as const),
  ...(["gateExps", "upExps", "downExps", "gateShared", "upShared", "downShared"] as const),
];
const VECTOR_ROLES = ["attnNorm", "qANorm", "kvNorm", "sinks", "ffnNorm"] as const;

function layerWeights(layer: BoundLayer, resident: ResidentWeights): LayerWeights {
  const named = (role: keyof BoundLayer & (typeof MATRIX_ROLES)[number]): NamedMatrix => {
    return { name: layer[role].name, matrix: resident.matrix(layer[role]) };
  };
  const matrices = Object.fromEntries(MATRIX_ROLES.map((role) => [role, named(role)]));
  const vectors = Object.fromEntries(VECTOR_ROLES.map((role) => [role, resident.floats(layer[role])]));
  const { indexer } = layer;
  return {
    ...(matrices as Record<(typeof MATRIX_ROLES)[number], NamedMatrix>),
    ...(vectors as Record<(typeof VECTOR_ROLES)[number], Float32Array>),
    spec: layer.spec,
    hcAttn: hyperWeights(layer.hcAttn, resident),
    hcFfn: hyperWeights(layer.hcFfn, resident),
    compressor: layer.compressor && compressorWeights(layer.compressor, resident),
    indexer: indexer && {
      proj: { name: indexer.proj.name, matrix: resident.matrix(indexer.proj) },
      qB: { name: indexer.qB.name, matrix: resident.matrix(indexer.qB) },
      compressor: compressorWeights(indexer.compressor, resident),
    },
    table: layer.tid2eid ? resident.ints(layer.tid2eid) : null,
    bias: layer.expBias ? resident.floats(layer.expBias) : null,
  };
}

function hyperWeights(hyper: HyperTensors, resident: ResidentWeights): HyperWeights {
  return {
    fn: resident.matrix(hyper.fn),
    base: resident.floats(hyper.base),
    scale: resident.floats(hyper.scale),
  };
}

function compressorWeights(tensors: CompressorTensors, resident: ResidentWeights): CompressorWeights {
  return {
    kv: { name: tensors.kv.name, matrix: resident.matrix(tensors.kv) },
    gate: { name: tensors.gate.name, matrix: resident.matrix(tensors.gate) },
    ape: resident.floats(tensors.ape),
    norm: resident.floats(tensors.norm),
  };
}
