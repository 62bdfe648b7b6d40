// Where every weight goes: a pure plan from the tensor table, known to the byte before anything is allocated. Matrices
// go into one arena in kernel layout; the small vectors are float32 arrays of their own.
import { rowBytes } from "../blocks/ggml-types.ts";
import { UnsupportedModelError } from "../core/errors.ts";
import { alignUp } from "../core/units.ts";
import { type TensorInfo, valueCount } from "../gguf/gguf-file.ts";
import type { BoundLayer, BoundModel, CompressorTensors, HyperTensors } from "../model/weights.ts";

/** Rows that the kernels interleave: a slice is padded to a multiple (native/cpu/packed_layout.h). */
export const PANEL_ROWS = 16;
/** Matrices start on cache lines (native/addon/matrix-glue.cpp). */
export const MATRIX_ALIGNMENT_BYTES = 64;

/** What a tensor is for, as people ask about memory. `vectors` are norms, biases, sinks and routing tables. */
export type WeightClass =
  | "embedding"
  | "head"
  | "attention"
  | "compressors"
  | "router"
  | "shared-experts"
  | "routed-experts"
  | "vectors";

/** A matrix in the arena: `slices` experts (1 for a plain one) of [rows, cols]. */
export interface PlacedMatrix {
  tensor: TensorInfo;
  owner: WeightClass;
  slices: number;
  rows: number;
  cols: number;
  offsetBytes: number;
  bytes: number;
}

/** The whole plan. */
export interface WeightPlan {
  /** In file order, so that loading reads the file once from front to back. */
  matrices: readonly PlacedMatrix[];
  /** Norms, biases, sinks, position biases: decoded to float32. */
  vectors: readonly TensorInfo[];
  /** Routing tables: int32. */
  indexes: readonly TensorInfo[];
  /** Bytes of the arena, and of vectors and tables together. */
  arenaBytes: number;
  vectorBytes: number;
}

/**
 * Places every tensor of the model, each exactly once. Throws `unsupported-model` or `memory` for a tensor of
 * impossible size.
 */
export function planWeights(model: BoundModel): WeightPlan {
  const matrices: PlacedMatrix[] = [];
  let arenaBytes = 0;
  const ordered = matrixTensors(model).sort(([, a], [, b]) => fileOrder(a, b));
  for (const [owner, tensor] of ordered) {
    const placed = placeMatrix(owner, tensor, arenaBytes);
    matrices.push(placed);
    arenaBytes = alignUp(placed.offsetBytes + placed.bytes, MATRIX_ALIGNMENT_BYTES);
  }
  const vectors = vectorTensors(model).sort(fileOrder);
  const indexes = model.layers.flatMap((layer) => layer.tid2eid ?? []).sort(fileOrder);
  const vectorBytes = [...vectors, ...indexes].reduce((sum, tensor) => sum + 4 * valueCount(tensor), 0);
  return { matrices, vectors, indexes, arenaBytes, vectorBytes };
}

function placeMatrix(owner: WeightClass, tensor: TensorInfo, offsetBytes: number): PlacedMatrix {
  const [cols, rows = 1, slices = 1] = tensor.dims;
  const paddedRows = alignUp(rows, PANEL_ROWS);
  const bytes = slices * paddedRows * rowBytes(tensor.type, cols);
  if (!Number.isSafeInteger(bytes)) {
    throw new UnsupportedModelError(`tensor "${tensor.name}" is too large: [${tensor.dims.join(", ")}]`);
  }
  return { tensor, owner, slices, rows, cols, offsetBytes, bytes };
}

type OwnedTensor = [owner: WeightClass, tensor: TensorInfo];

function matrixTensors(model: BoundModel): OwnedTensor[] {
  return [
    ["embedding", model.embedding],
    ["head", model.head],
    ["router", model.outputHc.fn],
    ...model.layers.flatMap(layerMatrices),
  ];
}

function layerMatrices(layer: BoundLayer): OwnedTensor[] {
  const { compressor, indexer } = layer;
  const owned = (owner: WeightClass, ...tensors: TensorInfo[]) =>
    tensors.map((tensor): OwnedTensor => [owner, tensor]);
  return [
    ...owned("attention", layer.qA, layer.qB, layer.kv, layer.outA, layer.outB),
    ...(compressor ? owned("compressors", compressor.kv, compressor.gate) : []),
    ...(indexer
      ? owned("compressors", indexer.proj, indexer.qB, indexer.compressor.kv, indexer.compressor.gate)
      : []),
    ...owned("router", layer.hcAttn.fn, layer.hcFfn.fn, layer.router),
    ...owned("routed-experts", layer.gateExps, layer.upExps, layer.downExps),
    ...owned("shared-experts", layer.gateShared, layer.upShared, layer.downShared),
  ];
}

function vectorTensors(model: BoundModel): TensorInfo[] {
  return [model.outputNorm, ...hyperVectors(model.outputHc), ...model.layers.flatMap(layerVectors)];
}

function layerVectors(layer: BoundLayer): TensorInfo[] {
  return [
    ...[layer.attnNorm, layer.qANorm, layer.kvNorm, layer.sinks, layer.ffnNorm],
    ...hyperVectors(layer.hcAttn),
    ...hyperVectors(layer.hcFfn),
    ...compressorVectors(layer.compressor),
    ...compressorVectors(layer.indexer?.compressor),
    ...(layer.expBias ? [layer.expBias] : []),
  ];
}

function hyperVectors(hyper: HyperTensors): TensorInfo[] {
  return [hyper.base, hyper.scale];
}

function compressorVectors(compressor: CompressorTensors | undefined): TensorInfo[] {
  return compressor ? [compressor.ape, compressor.norm] : [];
}

function fileOrder(a: TensorInfo, b: TensorInfo): number {
  return a.fileIndex - b.fileIndex || a.offsetBytes - b.offsetBytes;
}
