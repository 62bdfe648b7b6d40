// How the kernels that decode one token are cut: pure functions of shapes, types and the device. decode-fit.ts says which models they serve.
import { assert } from "../../core/errors.ts";
import { alignUp } from "../../core/units.ts";
import type { ModelSpec } from "../../model/model-spec.ts";
import { DEVICE_ALIGNMENT_BYTES, type DeviceBuffer, partsBytes } from "./device-memory.ts";
import type { DeviceInfo } from "./driver.ts";
import type { DeviceMatrix } from "./matrix.ts";

/** Threads of a block: eight warps (kStreamWarps). */
export const STREAM_THREADS = 256;
const STREAM_WARPS = 8;
/** kStreamPartialBytes. */
const STREAM_PARTIAL_BYTES = STREAM_WARPS * STREAM_WARPS * 32 * 4;
/** IQ2_XXS's tables in shared memory. */
const LATTICE_BYTES = 32 * 384 * 4;
/** Of all warps: kMostStages each. */
const MOST_STAGES = 8 * STREAM_WARPS;
/** Shared memory of a multiprocessor from which two blocks each have enough of it. */
const TWO_BLOCKS_BYTES = 200 * 1024;
/** Shared memory of a block that is not dynamic, with what the driver keeps for itself. */
const STATIC_SHARED_BYTES = 11 * 1024;
/** kMaxSharedTasks. */
const MAX_SHARED_TASKS = 2048;
/** kMostUsedExperts. */
export const MOST_USED_EXPERTS = 32;
/** What the router's choice keeps in registers: at most 16 for each lane of a warp. */
export const MOST_EXPERTS = 512;
/** What a task costs beside its bytes, in bytes that a multiprocessor reads in that time: a barrier and a sum. */
const TASK_BYTES = 8192;

const [F32, F16, BF16, Q8_0, Q2_K, Q4_K, IQ2_XXS] = [0, 1, 30, 8, 10, 12, 16];
const INT8_TYPES = new Set([Q8_0, Q2_K, Q4_K, IQ2_XXS]);

/** Whether these kernels multiply weights of this type in int8. */
export function isInt8({ type }: DeviceMatrix): boolean {
  return INT8_TYPES.has(type);
}

/** Whether these kernels read weights of this type. */
export function canRead({ type }: DeviceMatrix): boolean {
  return UNITS.has(type);
}

/** What a warp takes at a time of two panels. */
interface Unit {
  cols: number;
  /** Of both panels. */
  bytes: number;
}

/** By type: unitShiftOf and unitBytesOf of native/cuda/stream-units.cuh. */
const UNITS: ReadonlyMap<number, Unit> = new Map([
  [F32, { cols: 32, bytes: 2 * 2048 }],
  [F16, { cols: 64, bytes: 2 * 2048 }],
  [BF16, { cols: 64, bytes: 2 * 2048 }],
  [Q8_0, { cols: 128, bytes: 2 * 4 * 16 * 34 }],
  [Q2_K, { cols: 256, bytes: 2 * 16 * 84 }],
  [Q4_K, { cols: 256, bytes: 2 * 16 * 144 }],
  [IQ2_XXS, { cols: 256, bytes: 2 * 16 * 66 }],
]);

function unitOf({ type }: DeviceMatrix): Unit {
  const unit = UNITS.get(type);
  assert(unit !== undefined, `type ${type} is streamed`);
  return unit;
}

/** Where a step's shared memory goes: StreamRoom of native/cuda/stream-rows.cuh. */
export interface StreamRoom {
  tableBytes: number;
  /** Of a stage: what a warp takes at a time. */
  stageBytes: number;
  /** Of all warps, one each at least; 0 where there is no room for them. */
  stages: number;
  /** All of it, the step's rows included. */
  sharedBytes: number;
}

/** The blocks of a chain (native/cuda/decode-chain.cu): all of them resident. */
export interface ChainShape {
  multiprocessors: number;
  blocksPerMultiprocessor: number;
  /** Dynamic shared memory of a block, at most. */
  sharedBytes: number;
}

/** The most blocks that a device's shared memory is enough for. */
export function chainShape(device: DeviceInfo): ChainShape {
  const { multiprocessors, sharedBytesPerMultiprocessor: all, sharedBytesPerBlock } = device;
  const blocksPerMultiprocessor = all >= TWO_BLOCKS_BYTES ? 2 : 1;
  const sharedBytes = Math.min(all / blocksPerMultiprocessor, sharedBytesPerBlock) - STATIC_SHARED_BYTES;
  return { multiprocessors, blocksPerMultiprocessor, sharedBytes };
}

/** The room of a step that reads `matrices`, with `rowBytes` for its input. Without stages where the block has no room for it. */
export function streamRoom(
  { sharedBytes: most }: ChainShape,
  matrices: readonly DeviceMatrix[],
  rowBytes: number,
): StreamRoom {
  const tables = tableBytes(matrices);
  const stageBytes = Math.max(...matrices.map((matrix) => unitOf(matrix).bytes));
  const fixed = STREAM_PARTIAL_BYTES + tables + alignUp(rowBytes, 16);
  const fitting = Math.floor((most - fixed) / stageBytes);
  const stages = fitting < STREAM_WARPS ? 0 : Math.min(MOST_STAGES, fitting);
  return { tableBytes: tables, stageBytes, stages, sharedBytes: fixed + stages * stageBytes };
}

/** Bytes of tables that a launch needs with weights of these types. */
function tableBytes(matrices: readonly DeviceMatrix[]): number {
  return matrices.some(({ type }) => type === IQ2_XXS) ? LATTICE_BYTES : 0;
}

/** Bytes of `rows` staged input rows in the form that a matrix of this type needs. */
export function stagedBytes({ type, cols }: DeviceMatrix, rows = 1): number {
  return rows * alignUp(cols, 128) * (INT8_TYPES.has(type) ? 1.375 : 4);
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
  const units = Math.ceil(matrix.cols / unitOf(matrix).cols);
  return { groups, units, bytes: matrix.sliceBytes };
}

/** A cut of some works: tasks per group are 2^shift; `perBlock` tasks to a block, one after another. */
export interface StreamCut {
  shifts: number[];
  tasks: number;
  perBlock: number;
  blocks: number;
}

/**
 * The cut for at most `mostBlocks` blocks whose busiest block has least to do. Every warp of a task has at least one unit.
 */
export function cutWorks(works: readonly StreamWork[], mostBlocks: number): StreamCut {
  const total = works.reduce((sum, { bytes }) => sum + bytes, 0);
  let best: { cut: StreamCut; cost: number } | null = null;
  for (const parts of [0, 1, 2, 4, 8]) {
    const target = parts === 0 ? total : total / mostBlocks / parts;
    const shifts = works.map(({ groups, units, bytes }) => {
      const most = Math.floor(Math.log2(Math.max(1, units / STREAM_WARPS)));
      return Math.max(0, Math.min(most, Math.round(Math.log2(bytes / groups / target))));
    });
    const shared = shifts.reduce((sum, shift, i) => sum + (shift > 0 ? works[i].groups << shift : 0), 0);
    const cut = cutOf(works, shifts, mostBlocks);
    const cost = busiest(works, cut);
    if (shared <= MAX_SHARED_TASKS && (best === null || cost < best.cost)) best = { cut, cost };
  }
  return best!.cut;
}

/** How the work of down is cut: the chosen experts' (`used` of them) and the shared one's. */
export interface DownCut {
  experts: StreamCut;
  shared: StreamCut;
}

/** Every block may have tasks of both. */
export function cutDown(
  shape: ChainShape,
  down: DeviceMatrix,
  sharedDown: DeviceMatrix,
  used: number,
): DownCut {
  const blocks = blocksOf(shape);
  const pair = pairWork(down);
  const experts = cutWorks([{ ...pair, units: used * pair.units, bytes: used * pair.bytes }], blocks);
  return { experts, shared: cutWorks([pairWork(sharedDown)], Math.max(1, blocks >> 1)) };
}

/** All blocks of a chain. */
export function blocksOf({ multiprocessors, blocksPerMultiprocessor }: ChainShape): number {
  return multiprocessors * blocksPerMultiprocessor;
}

function cutOf(works: readonly StreamWork[], shifts: number[], mostBlocks: number): StreamCut {
  const tasks = works.reduce((sum, { groups }, i) => sum + (groups << shifts[i]), 0);
  const perBlock = Math.ceil(tasks / mostBlocks);
  return { shifts, tasks, perBlock, blocks: Math.ceil(tasks / perBlock) };
}

/** Bytes of the busiest block. */
function busiest(works: readonly StreamWork[], { shifts, perBlock }: StreamCut): number {
  let [most, load, task] = [0, 0, 0];
  works.forEach(({ groups, bytes }, i) => {
    const each = bytes / groups / 2 ** shifts[i] + TASK_BYTES;
    for (let n = groups << shifts[i]; n > 0; n--) {
      if (task++ % perBlock === 0) load = 0;
      load += each;
      most = Math.max(most, load);
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
  /** Of every output group, one after another. */
  mixed: DeviceBuffer;
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
    mixed: spec.outputGroupCount * bytes((spec.headCount * spec.headDim) / spec.outputGroupCount),
    low: bytes(spec.outputGroupCount * spec.outputLoraRank),
    ...{ h: bytes(spec.expertUsedCount * inner), sharedH: bytes(spec.expertSharedCount * inner) },
  };
}

/** Bytes of all of them. */
export function quantizedRowBytes(spec: ModelSpec): number {
  return partsBytes(quantizedRowSizes(spec));
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
