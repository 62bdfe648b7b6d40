// The loaded weights by role, looked up once so that the forward pass touches no maps. What a matrix, a vector and a
// table are is the backend's business.
import type { TensorInfo } from "../gguf/gguf-file.ts";
import type { LayerSpec, ModelSpec } from "../model/model-spec.ts";
import type { BoundLayer, BoundModel, CompressorTensors, HyperTensors } from "../model/weights.ts";

/** Where weights are found. Every getter throws for a tensor that is not loaded. */
export interface WeightSource<Matrix, Floats, Ints> {
  matrix(tensor: TensorInfo): Matrix;
  floats(tensor: TensorInfo): Floats;
  ints(tensor: TensorInfo): Ints;
}

/** A matrix with the name it has in the file. */
export interface NamedMatrix<Matrix> {
  name: string;
  matrix: Matrix;
}

/** Weights of one hyper-connection read; shapes as in `HyperTensors`. */
export interface HyperWeights<Matrix, Floats> {
  fn: Matrix;
  base: Floats;
  scale: Floats;
}

/** Weights of one compressor; shapes as in `CompressorTensors`. */
export interface CompressorWeights<Matrix, Floats> {
  kv: NamedMatrix<Matrix>;
  gate: NamedMatrix<Matrix>;
  ape: Floats;
  norm: Floats;
}

/** One layer; shapes as in `BoundLayer`. */
export interface LayerWeights<Matrix, Floats, Ints> {
  spec: LayerSpec;
  hcAttn: HyperWeights<Matrix, Floats>;
  hcFfn: HyperWeights<Matrix, Floats>;
  attnNorm: Floats;
  qA: NamedMatrix<Matrix>;
  qANorm: Floats;
  qB: NamedMatrix<Matrix>;
  kv: NamedMatrix<Matrix>;
  kvNorm: Floats;
  sinks: Floats;
  outA: NamedMatrix<Matrix>;
  outB: NamedMatrix<Matrix>;
  compressor?: CompressorWeights<Matrix, Floats>;
  indexer?: {
    proj: NamedMatrix<Matrix>;
    qB: NamedMatrix<Matrix>;
    compressor: CompressorWeights<Matrix, Floats>;
  };
  ffnNorm: Floats;
  router: NamedMatrix<Matrix>;
  table: Ints | null;
  bias: Floats | null;
  gateExps: NamedMatrix<Matrix>;
  upExps: NamedMatrix<Matrix>;
  downExps: NamedMatrix<Matrix>;
  gateShared: NamedMatrix<Matrix>;
  upShared: NamedMatrix<Matrix>;
  downShared: NamedMatrix<Matrix>;
}

/** The whole model. */
export interface ModelWeights<Matrix, Floats, Ints> {
  spec: ModelSpec;
  embedding: Matrix;
  head: NamedMatrix<Matrix>;
  outputNorm: Floats;
  outputHc: HyperWeights<Matrix, Floats>;
  layers: readonly LayerWeights<Matrix, Floats, Ints>[];
}

/** Where the products of a layer's input go, and of the queries' low-rank form. */
export type ProductRooms<Values> = Record<
  | "queryRank"
  | "kv"
  | "compressorKv"
  | "compressorGate"
  | "indexerKv"
  | "indexerGate"
  | "indexerHeads"
  | "q"
  | "indexerQueries",
  Values
>;

/** A product: which matrix, and where its result goes. */
export type Product<Matrix, Values> = [matrix: NamedMatrix<Matrix>, out: Values];

/** All products that read the attention block's input; together, it is quantized once. */
export function inputProducts<Matrix, Values>(
  { qA, kv, compressor, indexer }: LayerWeights<Matrix, unknown, unknown>,
  rooms: ProductRooms<Values>,
): Product<Matrix, Values>[] {
  const products: Product<Matrix, Values>[] = [
    [qA, rooms.queryRank],
    [kv, rooms.kv],
  ];
  if (compressor) products.push([compressor.kv, rooms.compressorKv], [compressor.gate, rooms.compressorGate]);
  if (indexer) {
    products.push(
      [indexer.compressor.kv, rooms.indexerKv],
      [indexer.compressor.gate, rooms.indexerGate],
      [indexer.proj, rooms.indexerHeads],
    );
  }
  return products;
}

/** All products that read the queries' low-rank form. */
export function queryProducts<Matrix, Values>(
  { qB, indexer }: LayerWeights<Matrix, unknown, unknown>,
  rooms: ProductRooms<Values>,
): Product<Matrix, Values>[] {
  return indexer
    ? [
        [qB, rooms.q],
        [indexer.qB, rooms.indexerQueries],
      ]
    : [[qB, rooms.q]];
}

/** Looks every role up. */
export function modelWeights<Matrix, Floats, Ints>(
  model: BoundModel,
  resident: WeightSource<Matrix, Floats, Ints>,
): ModelWeights<Matrix, Floats, Ints> {
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

function layerWeights<Matrix, Floats, Ints>(
  layer: BoundLayer,
  resident: WeightSource<Matrix, Floats, Ints>,
): LayerWeights<Matrix, Floats, Ints> {
  const named = (role: keyof BoundLayer & (typeof MATRIX_ROLES)[number]): NamedMatrix<Matrix> => {
    return { name: layer[role].name, matrix: resident.matrix(layer[role]) };
  };
  const matrices = Object.fromEntries(MATRIX_ROLES.map((role) => [role, named(role)]));
  const vectors = Object.fromEntries(VECTOR_ROLES.map((role) => [role, resident.floats(layer[role])]));
  const { indexer } = layer;
  return {
    ...(matrices as Record<(typeof MATRIX_ROLES)[number], NamedMatrix<Matrix>>),
    ...(vectors as Record<(typeof VECTOR_ROLES)[number], Floats>),
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

function hyperWeights<Matrix, Floats, Ints>(
  hyper: HyperTensors,
  resident: WeightSource<Matrix, Floats, Ints>,
): HyperWeights<Matrix, Floats> {
  return {
    fn: resident.matrix(hyper.fn),
    base: resident.floats(hyper.base),
    scale: resident.floats(hyper.scale),
  };
}

function compressorWeights<Matrix, Floats, Ints>(
  tensors: CompressorTensors,
  resident: WeightSource<Matrix, Floats, Ints>,
): CompressorWeights<Matrix, Floats> {
  return {
    kv: { name: tensors.kv.name, matrix: resident.matrix(tensors.kv) },
    gate: { name: tensors.gate.name, matrix: resident.matrix(tensors.gate) },
    ape: resident.floats(tensors.ape),
    norm: resident.floats(tensors.norm),
  };
}
