// How the kernels that decode one token are cut: pure functions of shapes, types and the device.
import { alignUp } from "../../core/units.ts";
import type { ModelSpec } from "../../model/model-spec.ts";
import { DEVICE_ALIGNMENT_BYTES, type DeviceBuffer, partsBytes } from "./device-memory.ts";
import type { DeviceMatrix } from "./matrix.ts";
import type { CudaModelWeights } from "./pass.ts";

/** Threads of a block: eight warps (kStreamWarps). */
export const STREAM_THREADS = 256;
const STREAM_WARPS = 8;
/** kStreamPartialBytes. */
export const STREAM_PARTIAL_BYTES = STREAM_WARPS * STREAM_WARPS * 32 * 4;
/** IQ2_XXS's tables in shared memory. */
const LATTICE_BYTES = 32 * 384 * 4;
/** kMaxSharedTasks. */
const MAX_SHARED_TASKS = 2048;
/** kMostUsedExperts. */
const MOST_USED_EXPERTS = 32;
/** kMostGatedPairs. */
const MOST_GATED_PAIRS = 4096;
/** What the router's choice keeps in registers: 32 * kExpertsPerLane. */
export const MOST_EXPERTS = 512;
/** What a task costs beside its bytes, in bytes that a multiprocessor reads in that time: a barrier and a sum. */
const TASK_BYTES = 8192;

const [F32, F16, BF16, IQ2_XXS] = [0, 1, 30, 16];
const INT8_TYPES = new Set([8, 10, 12, IQ2_XXS]);
const FLOAT_TYPES = new Set([F32, F16, BF16]);

/** Columns that a warp takes at a time. */
function unitCols(type: number): number {
  if (INT8_TYPES.has(type)) return 128;
  return type === F32 ? 32 : 64;
}

/** Bytes of tables that a launch needs with weights of these types. */
export function tableBytes(matrices: readonly DeviceMatrix[]): number {
  return matrices.some(({ type }) => type === IQ2_XXS) ? LATTICE_BYTES : 0;
}

/** Bytes of `rows` staged input rows in the form that a matrix of this type needs. */
export function stagedBytes({ type, cols }: DeviceMatrix, rows = 1): number {
  return rows * alignUp(cols, 128) * (INT8_TYPES.has(type) ? 1.375 : 4);
}

/** Bytes of `rows` staged input rows in both forms. */
export function stagedTwiceBytes(cols: number, rows = 1): number {
  return rows * alignUp(cols, 128) * 5.375;
}

/** Work that is cut into tasks: `groups` times `units` runs of columns. */
export interface StreamWork {
  groups: number;
  units: number;
  bytes: number;
}

/** Pairs of panels of a matrix. */
export function pairWork(matrix: DeviceMatrix): StreamWork {
  const groups = Math.ceil(matrix.rows / 32);
  const units = Math.ceil(matrix.cols / unitCols(matrix.type));
  return { groups, units, bytes: matrix.sliceBytes };
}

/**
 * Tasks per group, for works whose tasks are shared by `blocks` blocks: the cut whose busiest block has least to
 * do. Every warp of a task has at least one unit.
 */
export function splitWorks(works: readonly StreamWork[], blocks: number): number[] {
  const total = works.reduce((sum, { bytes }) => sum + bytes, 0);
  let best: { splits: number[]; cost: number } | null = null;
  for (const parts of [0.5, 1, 2, 3, 4, 6, 8]) {
    const target = total / blocks / parts;
    const splits = works.map(({ groups, units, bytes }) => {
      const most = Math.max(1, Math.floor(units / STREAM_WARPS));
      return Math.max(1, Math.min(most, Math.round(bytes / groups / target)));
    });
    const shared = splits.reduce((sum, each, i) => sum + (each > 1 ? each * works[i].groups : 0), 0);
    const cost = busiest(works, splits, blocks);
    if (shared <= MAX_SHARED_TASKS && (best === null || cost < best.cost)) best = { splits, cost };
  }
  return best?.splits ?? works.map(() => 1);
}

/** Bytes of the busiest block, when every block has an equal run of all tasks. */
function busiest(works: readonly StreamWork[], splits: readonly number[], blocks: number): number {
  const tasks = taskCount(works, splits);
  const count = Math.min(blocks, tasks);
  let [most, block, load, task] = [0, 0, 0, 0];
  works.forEach(({ groups, bytes }, i) => {
    const each = bytes / groups / splits[i] + TASK_BYTES;
    for (let n = groups * splits[i]; n > 0; n--) {
      while (task >= Math.floor((tasks * (block + 1)) / count)) {
        block++;
        load = 0;
      }
      load += each;
      most = Math.max(most, load);
      task++;
    }
  });
  return most;
}

/** The int8 forms of a token's rows, all views of one buffer, and the sums of squares of its query rank. */
export interface QuantizedRows {
  x: DeviceBuffer;
  headX: DeviceBuffer;
  queryRank: DeviceBuffer;
  querySquares: DeviceBuffer;
  low: DeviceBuffer;
  h: DeviceBuffer;
  sharedH: DeviceBuffer;
}

function quantizedRowSizes(spec: ModelSpec): Record<keyof QuantizedRows, number> {
  const bytes = (cols: number) => 1.375 * alignUp(cols, 128);
  const { hiddenSize, queryLoraRank, expertHiddenSize: inner } = spec;
  return {
    ...{ x: bytes(hiddenSize), headX: bytes(hiddenSize), queryRank: bytes(queryLoraRank) },
    querySquares: 4 * Math.ceil(queryLoraRank / 32),
    low: bytes(spec.outputGroupCount * spec.outputLoraRank),
    ...{ h: bytes(spec.expertUsedCount * inner), sharedH: bytes(spec.expertSharedCount * inner) },
  };
}

/** Where the rows lie. */
export function quantizedRows(spec: ModelSpec, buffer: DeviceBuffer): QuantizedRows {
  let offset = 0;
  const parts = Object.entries(quantizedRowSizes(spec)).map(([name, bytes]) => {
    const part = buffer.slice(offset, bytes);
    offset += alignUp(bytes, DEVICE_ALIGNMENT_BYTES);
    return [name, part];
  });
  return Object.fromEntries(parts) as Record<keyof QuantizedRows, DeviceBuffer>;
}

/** Tasks in all. */
export function taskCount(works: readonly StreamWork[], splits: readonly number[]): number {
  return works.reduce((sum, { groups }, i) => sum + groups * splits[i], 0);
}

/** True for models whose weights these kernels can all read, where `workInput` has room for a token's int8 rows. */
export function canStream(model: CudaModelWeights, workInput: DeviceBuffer): boolean {
  const { spec, layers, head, outputHc } = model;
  const readable = ({ type }: DeviceMatrix) => INT8_TYPES.has(type) || FLOAT_TYPES.has(type);
  const isFn = ({ type }: DeviceMatrix) => type === F32 || type === F16;
  const { outputGroupCount: groups, outputLoraRank: rank, expertHiddenSize: inner } = spec;
  const gatedPairs = ((spec.expertUsedCount + spec.expertSharedCount) * inner) / 32;
  const widths = [spec.hiddenSize, spec.queryLoraRank, groups * rank, inner];
  const shapes =
    spec.hyperCount === 4 &&
    widths.every((width) => width % 128 === 0) &&
    rank % 32 === 0 &&
    inner >= 256 &&
    spec.headDim <= 1024 &&
    spec.indexerHeadDim <= 1024 &&
    spec.expertCount <= MOST_EXPERTS &&
    spec.expertUsedCount <= MOST_USED_EXPERTS &&
    gatedPairs <= MOST_GATED_PAIRS &&
    partsBytes(quantizedRowSizes(spec)) <= workInput.bytes;
  if (!shapes || !readable(head.matrix) || !isFn(outputHc.fn)) return false;
  return layers.every((layer) => {
    const { compressor, indexer } = layer;
    const dense = [layer.qA, layer.qB, layer.kv, layer.outA, layer.outB, layer.router];
    if (compressor) dense.push(compressor.kv, compressor.gate);
    if (indexer) dense.push(indexer.proj, indexer.qB, indexer.compressor.kv, indexer.compressor.gate);
    const gated = [layer.gateShared, layer.upShared, layer.downShared];
    gated.push(layer.gateExps, layer.upExps, layer.downExps);
    const wide = ({ cols, type }: DeviceMatrix) => !INT8_TYPES.has(type) || cols % 128 === 0;
    return (
      dense.every(({ matrix }) => wide(matrix)) &&
      isFn(layer.hcAttn.fn) &&
      isFn(layer.hcFfn.fn) &&
      dense.every(({ matrix }) => readable(matrix)) &&
      gated.every(({ matrix }) => INT8_TYPES.has(matrix.type)) &&
      layer.gateShared.matrix.type === layer.upShared.matrix.type &&
      layer.gateExps.matrix.type === layer.upExps.matrix.type
    );
  });
}
