// Sizes and launch shapes of the matrix kernels: pure functions of shapes, types and the device.
import { alignUp } from "../../core/units.ts";
import type { ModelSpec } from "../../model/model-spec.ts";
import { DEVICE_ALIGNMENT_BYTES, type DeviceBuffer, partsBytes } from "./device-memory.ts";
import type { DeviceMatrix } from "./matrix.ts";
import type { RoutingArg } from "./matrix-structs.ts";

/** Most activation rows of the decode kernels; more go through tiles. */
export const MAX_DECODE_ROWS = 16;
/** Activation rows per pass of a decode kernel. */
const ROWS_PER_PASS = 8;
/** kMaxSplitTasks of multiply-rows.cu. */
const MAX_SPLIT_TASKS = 1024;
/** Copies per bank of IQ2_XXS's tables, (256 + 128) words each. */
const LATTICE_BYTES = 32 * 384 * 4;
/** sizeof(TileShared) of int-tiles.cuh. */
export const TILE_SHARED_BYTES = 2 * 64 * (160 + 16 + 32) + 64 * 4 + 8 * 384 * 4;
/** Threads of a tile block. */
export const TILE_THREADS = 128;
/** Warps of a decode block: two blocks fit a multiprocessor by registers. */
const DECODE_WARPS = 8;

const IQ2_XXS = 16;
const INT8_TYPES = new Set([8, 10, 12, IQ2_XXS]);
/** F32, F16, BF16, MXFP4. */
const TF32_TYPES = new Set([0, 1, 30, 39]);

/** Kinds of prefill kernels: int8 tensor cores, tf32 tensor cores, plain float32. */
export type TileKind = "int8" | "tf32" | "float";

/** The kernels that multiply many activation rows by a matrix of this type. */
export function tileKind({ type }: DeviceMatrix): TileKind {
  if (INT8_TYPES.has(type)) return "int8";
  return TF32_TYPES.has(type) ? "tf32" : "float";
}

/** True for the types that meet int8 activations: Q8_0, Q2_K, Q4_K, IQ2_XXS. */
export function usesInt8(matrix: DeviceMatrix): boolean {
  return INT8_TYPES.has(matrix.type);
}

/** Bytes of `rows` quantized activation rows: int8 values, a scale per 32 and a sum per 16 columns. */
export function quantizedInputBytes(rows: number, cols: number): number {
  const stride = alignUp(cols, 128);
  return rows * (stride + stride / 8 + stride / 4);
}

/** Threads, dynamic shared memory and split of a decode launch. */
export interface DecodeShape {
  threads: number;
  sharedBytes: number;
  blocks: number;
  /** Blocks that share the columns of one pair of panels. */
  splits: number;
}

/**
 * For `pairs` pairs of panels with `cols` columns. Few pairs are split by columns (unless `splittable` is false) until
 * every multiprocessor has a block; many are looped over when each block has to fill tables first.
 */
export function decodeShape(
  multiprocessors: number,
  matrices: readonly DeviceMatrix[],
  pairs: number,
  splittable: boolean,
): DecodeShape {
  const lattice = matrices.some((matrix) => matrix.type === IQ2_XXS);
  const turns = Math.max(
    ...matrices.map(({ cols, type }) => Math.ceil(cols / (INT8_TYPES.has(type) ? 128 : 32))),
  );
  const warps = Math.min(DECODE_WARPS, Math.max(2, 2 ** Math.ceil(Math.log2(turns))));
  const resident = 2 * multiprocessors;
  const wanted = Math.min(Math.floor(resident / pairs), Math.floor(MAX_SPLIT_TASKS / pairs));
  const splits = splittable ? Math.max(1, Math.min(wanted, Math.floor(turns / warps))) : 1;
  return {
    threads: 32 * warps,
    sharedBytes: warps * ROWS_PER_PASS * 32 * 4 + (lattice ? LATTICE_BYTES : 0),
    blocks: lattice && splits === 1 ? Math.min(pairs, resident) : pairs * splits,
    splits,
  };
}

/** The parts of an expert grouping and the scratch behind it, all views of one buffer. */
export interface RoutingParts extends RoutingArg {
  begin: DeviceBuffer;
  rowToken: DeviceBuffer;
  slotRow: DeviceBuffer;
  active: DeviceBuffer;
  activeCount: DeviceBuffer;
  /** What expertsUp and expertsDown need, one after the other. */
  scratch: DeviceBuffer;
}

function routingSizes(tokens: number, used: number, experts: number) {
  const slots = 4 * tokens * used;
  return { begin: 4 * (experts + 1), rowToken: slots, slotRow: slots, active: 4 * experts, activeCount: 4 };
}

/** Where the parts lie for these sizes. */
export function routingParts(
  buffer: DeviceBuffer,
  tokens: number,
  used: number,
  experts: number,
): RoutingParts {
  const sizes = routingSizes(tokens, used, experts);
  let offset = 0;
  const part = (bytes: number) => {
    const slice = buffer.slice(offset, bytes);
    offset += alignUp(bytes, DEVICE_ALIGNMENT_BYTES);
    return slice;
  };
  const [begin, rowToken, slotRow] = [part(sizes.begin), part(sizes.rowToken), part(sizes.slotRow)];
  const [active, activeCount] = [part(sizes.active), part(sizes.activeCount)];
  return { begin, rowToken, slotRow, active, activeCount, scratch: buffer.slice(offset) };
}

/** Shapes of a mixture of experts. */
export interface ExpertSizes {
  tokens: number;
  used: number;
  experts: number;
  hidden: number;
  inner: number;
  sharedInner: number;
}

/** Scratch of expertsUp: quantized input, and `up` where it cannot be multiplied beside `gate`. */
export function expertsUpSizes({ tokens, used, hidden, inner, sharedInner }: ExpertSizes) {
  return {
    input: quantizedInputBytes(tokens, hidden),
    up: 4 * tokens * Math.max(used * inner, sharedInner),
  };
}

/** Scratch of expertsDown: quantized inputs and the experts' results. */
export function expertsDownSizes({ tokens, used, hidden, inner, sharedInner }: ExpertSizes) {
  return {
    input: quantizedInputBytes(tokens * used, inner),
    sharedInput: quantizedInputBytes(tokens, sharedInner),
    down: 4 * tokens * used * hidden,
  };
}

/** Bytes of an `ExpertGroups` buffer for batches of up to `tokens`. */
export function expertGroupsBytes(sizes: ExpertSizes): number {
  const scratch = Math.max(partsBytes(expertsUpSizes(sizes)), partsBytes(expertsDownSizes(sizes)));
  return partsBytes(routingSizes(sizes.tokens, sizes.used, sizes.experts)) + scratch;
}

/** Bytes of the working memory of the matrix steps for batches of up to `maxBatchTokens`. */
export function workBytes(spec: ModelSpec, maxBatchTokens: number): { input: number; routing: number } {
  const groups = spec.outputGroupCount;
  const inputs: [rows: number, cols: number][] = [
    [1, spec.hiddenSize],
    [1, spec.hyperCount * spec.hiddenSize],
    [1, spec.queryLoraRank],
    [groups, (spec.headCount * spec.headDim) / groups],
    [1, groups * spec.outputLoraRank],
  ];
  const sizes = {
    ...{ tokens: maxBatchTokens, used: spec.expertUsedCount, experts: spec.expertCount },
    ...{ hidden: spec.hiddenSize, inner: spec.expertHiddenSize },
    sharedInner: spec.expertSharedCount * spec.expertHiddenSize,
  };
  const input = Math.max(...inputs.map(([rows, cols]) => quantizedInputBytes(maxBatchTokens * rows, cols)));
  return { input, routing: expertGroupsBytes(sizes) };
}
