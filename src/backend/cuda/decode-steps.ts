// Launches of the kernels that decode one token (native/cuda/stream-rows.cuh): inputs of one row, float32 on the device.
// They may start before the work ahead of them has ended, read weights, and wait where they need its results.
import { compressBlocks } from "./compress-struct.ts";
import type { CudaContext } from "./context.ts";
import {
  cutWorks,
  pairWork,
  STREAM_THREADS,
  type StreamRoom,
  stagedBytes,
  streamRoom,
} from "./decode-plans.ts";
import {
  type DecodeDownArg,
  type DecodeRouteArg,
  type DecodeRowsArg,
  type DecodeUpArg,
  decodeDownStruct,
  decodeRouteStruct,
  decodeRowsStruct,
  decodeUpStruct,
  type HyperJoinArg,
  type HyperTailArg,
  hyperJoinStruct,
  hyperTailStruct,
  MOST_STREAM_PRODUCTS,
  type StreamProductArg,
  type StreamProductsArg,
  streamProductsStruct,
} from "./decode-structs.ts";
import type { KernelArg } from "./kernel-args.ts";

/** Blocks per multiprocessor of products: with two, each waits less on its own instructions. */
const DENSE_BLOCKS = 2;
/** Of products of many small tasks, whose sums two blocks would have to share. */
const MIXED_BLOCKS = 1;
/** The router's blocks stand beside the shared expert's. */
const ROUTE_BLOCKS = 2;
/** Narrow types keep fewer bytes in flight per block. */
const EXPERT_BLOCKS = 2;

/** A product: what is left out is null. */
export type StreamProduct = Pick<StreamProductArg, "matrix"> &
  Partial<Omit<StreamProductArg, "splitShift" | "firstShare">>;

/** What else a launch of products does. */
export type StreamOptions = Partial<Omit<StreamProductsArg, "items">>;

const NOTHING = {
  x: null,
  quantized: null,
  out: null,
  outQuantized: null,
  outWeight: null,
  outSquares: null,
};

function roomArgs({ tableBytes, stageBytes, stages }: StreamRoom): KernelArg[] {
  return [{ i32: tableBytes }, { i32: stageBytes }, { i32: stages }];
}

function launch(
  { module, stream }: CudaContext,
  name: string,
  blocks: number,
  sharedBytes: number,
  args: readonly KernelArg[],
  threads = STREAM_THREADS,
): void {
  module.launch(stream, name, [blocks, 1, 1], [threads, 1, 1], sharedBytes, args, true);
}

/** Products of one row each, in launches of up to eight; `options` belong to the first. */
export function streamProducts(
  ctx: CudaContext,
  products: readonly StreamProduct[],
  options: StreamOptions = {},
): void {
  for (let first = 0; first < products.length; first += MOST_STREAM_PRODUCTS) {
    const some = products.slice(first, first + MOST_STREAM_PRODUCTS);
    launchProducts(ctx, some, first === 0 ? options : { norm: options.norm });
  }
}

function launchProducts(
  ctx: CudaContext,
  products: readonly StreamProduct[],
  { tail = null, balance = null, norm = null }: StreamOptions,
): void {
  const works = products.map(({ matrix }) => pairWork(matrix));
  const each = balance === null ? DENSE_BLOCKS : MIXED_BLOCKS;
  const { shifts, perBlock, blocks } = cutWorks(works, each * ctx.device.multiprocessors);
  let firstShare = 0;
  const items = products.map((product, i) => {
    const item = { ...NOTHING, ...product, splitShift: shifts[i], firstShare };
    if (shifts[i] > 0) firstShare += works[i].groups << shifts[i];
    return item;
  });
  const matrices = products.map(({ matrix }) => matrix);
  const rowBytes = Math.max(...matrices.map((matrix) => stagedBytes(matrix)));
  const room = streamRoom(ctx.device, matrices, rowBytes, each);
  launch(ctx, "stream_products", blocks + (balance === null ? 0 : 1), room.sharedBytes, [
    streamProductsStruct({ items, tail, balance, norm }),
    ...[...roomArgs(room), { i32: perBlock }],
  ]);
}

/** Router, the choice of experts, and the shared expert's gate and up. */
export function decodeRoute(
  ctx: CudaContext,
  route: Omit<DecodeRouteArg, "routerShift" | "sharedShift">,
): void {
  const { router, sharedGate, sharedUp } = route;
  const gated = {
    groups: sharedGate.rows / 16,
    units: pairWork(sharedGate).units,
    bytes: sharedGate.sliceBytes + sharedUp.sliceBytes,
  };
  const { multiprocessors } = ctx.device;
  const [routerCut, gatedCut] = [
    cutWorks([pairWork(router)], Math.ceil(multiprocessors / 2)),
    cutWorks([gated], multiprocessors),
  ];
  const rowBytes = 8 * route.experts + Math.max(stagedBytes(router), stagedBytes(sharedGate));
  const room = streamRoom(ctx.device, [router, sharedGate], rowBytes, ROUTE_BLOCKS);
  launch(ctx, "decode_route", routerCut.blocks + gatedCut.blocks + 1, room.sharedBytes, [
    decodeRouteStruct({ ...route, routerShift: routerCut.shifts[0], sharedShift: gatedCut.shifts[0] }),
    ...[...roomArgs(room), { i32: routerCut.blocks }],
  ]);
}

/** Gate and up of the chosen experts. */
export function decodeUp(ctx: CudaContext, up: DecodeUpArg): void {
  const room = streamRoom(ctx.device, [up.gate], stagedBytes(up.gate), EXPERT_BLOCKS);
  const tasks = (up.used * up.gate.rows) / 16;
  const perBlock = Math.ceil(tasks / (EXPERT_BLOCKS * ctx.device.multiprocessors));
  const blocks = Math.ceil(tasks / perBlock);
  launch(ctx, "decode_up", blocks, room.sharedBytes, [
    decodeUpStruct(up),
    ...[...roomArgs(room), { i32: perBlock }],
  ]);
}

/** Down of the chosen experts and the shared one, their weighted sum, and the write to the streams. */
export function decodeDown(ctx: CudaContext, arg: Omit<DecodeDownArg, "shift" | "sharedShift">): void {
  const { down, sharedDown, used } = arg;
  const pair = pairWork(down);
  const experts = { ...pair, units: used * pair.units, bytes: used * pair.bytes };
  const { multiprocessors } = ctx.device;
  const [cut, sharedCut] = [experts, pairWork(sharedDown)].map((work) => cutWorks([work], multiprocessors));
  const rowBytes = Math.max(stagedBytes(down, used), stagedBytes(sharedDown));
  const room = streamRoom(ctx.device, [down, sharedDown], rowBytes, EXPERT_BLOCKS);
  launch(ctx, "decode_down", cut.blocks + sharedCut.blocks, room.sharedBytes, [
    decodeDownStruct({ ...arg, shift: cut.shifts[0], sharedShift: sharedCut.shifts[0] }),
    ...[...roomArgs(room), { i32: cut.blocks }],
  ]);
}

/** A block's input from the streams and their partial sums; post and comb are left to `balance` of a later launch. */
export function hyperJoin(ctx: CudaContext, join: HyperJoinArg): void {
  launch(ctx, "hyper_join", Math.ceil(join.hidden / STREAM_THREADS), 0, [hyperJoinStruct(join)]);
}

/** Partial sums of streams that no block has written. */
export function hyperStart(ctx: CudaContext, tail: HyperTailArg): void {
  launch(ctx, "hyper_start", Math.ceil(tail.hidden / 128), 0, [hyperTailStruct(tail)], 128);
}

/** Norms and rotation of queries and key, the key's row in the window; beside them, rows enter compressors. */
export function decodeRows(ctx: CudaContext, rows: DecodeRowsArg): void {
  const warps = rows.heads + rows.indexerHeads + 1;
  const perBlock = STREAM_THREADS / 32;
  const beside = rows.compressors.reduce((sum, each) => sum + compressBlocks(each).blocks, 0);
  launch(ctx, "decode_rows", Math.ceil(warps / perBlock) + beside, 0, [decodeRowsStruct(rows)]);
}
