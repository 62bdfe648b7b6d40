// Launches of the kernels that decode one token (native/cuda/stream-rows.cuh): inputs of one row, float32 on the device.
// They may start before the work ahead of them has ended, read weights, and wait where they need its results.
import type { CudaContext } from "./context.ts";
import {
  pairWork,
  STREAM_PARTIAL_BYTES,
  STREAM_THREADS,
  type StreamWork,
  splitWorks,
  stagedBytes,
  stagedTwiceBytes,
  tableBytes,
  taskCount,
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
  streamProductsStruct,
} from "./decode-structs.ts";
import type { KernelArg } from "./kernel-args.ts";

/** Blocks per multiprocessor: one leaves room for the next kernel to start beside it. */
const DENSE_BLOCKS = 1;
/** Narrow types keep fewer bytes in flight per block. */
const EXPERT_BLOCKS = 2;

type Product = Pick<StreamProductArg, "matrix" | "x" | "out">;

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

/** out = x times matrix for each product; `norm`: inputs are RMS-normed first. */
export function streamProducts(
  ctx: CudaContext,
  products: readonly Product[],
  norm: { weight: StreamProductArg["x"]; epsilon: number } | null = null,
): void {
  for (let first = 0; first < products.length; first += MOST_STREAM_PRODUCTS) {
    launchProducts(ctx, products.slice(first, first + MOST_STREAM_PRODUCTS), null, norm);
  }
}

/** A block's output x times matrix, written to the streams at once. */
export function streamIntoStreams(
  ctx: CudaContext,
  product: Pick<Product, "matrix" | "x">,
  tail: HyperTailArg,
): void {
  launchProducts(ctx, [{ ...product, out: null }], tail, null);
}

function launchProducts(
  ctx: CudaContext,
  products: readonly Product[],
  tail: HyperTailArg | null,
  norm: { weight: StreamProductArg["x"]; epsilon: number } | null,
): void {
  const works = products.map(({ matrix }) => pairWork(matrix));
  const most = DENSE_BLOCKS * ctx.device.multiprocessors;
  const splits = splitWorks(works, most);
  let firstShare = 0;
  const items = products.map((product, i) => {
    const item = { ...product, splits: splits[i], firstShare };
    if (splits[i] > 1) firstShare += works[i].groups * splits[i];
    return item;
  });
  const matrices = products.map(({ matrix }) => matrix);
  const tables = tableBytes(matrices);
  const staged = Math.max(...matrices.map((matrix) => stagedBytes(matrix)));
  const blocks = Math.min(most, taskCount(works, splits));
  launch(ctx, "stream_products", blocks, STREAM_PARTIAL_BYTES + tables + staged, [
    streamProductsStruct({ items, tail, norm }),
    { i32: tables },
  ]);
}

/** Router, the choice of experts, and the shared expert's gate and up. */
export function decodeRoute(
  ctx: CudaContext,
  route: Omit<DecodeRouteArg, "routerSplits" | "sharedSplits">,
): void {
  const { router, sharedGate, sharedUp } = route;
  const gated = gatedWork(
    sharedGate.rows / 16,
    pairWork(sharedGate),
    sharedGate.sliceBytes + sharedUp.sliceBytes,
  );
  const works = [pairWork(router), gated];
  const most = DENSE_BLOCKS * ctx.device.multiprocessors;
  const [routerSplits, sharedSplits] = splitWorks(works, most);
  const tables = tableBytes([router, sharedGate]);
  const sharedBytes = STREAM_PARTIAL_BYTES + 8 * route.experts + tables + stagedTwiceBytes(router.cols);
  const blocks = Math.min(most, taskCount(works, [routerSplits, sharedSplits]));
  launch(ctx, "decode_route", blocks, sharedBytes, [
    decodeRouteStruct({ ...route, routerSplits, sharedSplits }),
    { i32: tables },
  ]);
}

function gatedWork(groups: number, { units }: StreamWork, bytes: number): StreamWork {
  return { groups, units, bytes };
}

/** Gate and up of the chosen experts. */
export function decodeUp(ctx: CudaContext, up: DecodeUpArg): void {
  const tables = tableBytes([up.gate]);
  const tasks = (up.used * up.gate.rows) / 16;
  const blocks = Math.min(EXPERT_BLOCKS * ctx.device.multiprocessors, tasks);
  const sharedBytes = STREAM_PARTIAL_BYTES + tables + stagedBytes(up.gate);
  launch(ctx, "decode_up", blocks, sharedBytes, [decodeUpStruct(up), { i32: tables }]);
}

/** Down of the chosen experts and the shared one, their weighted sum, and the write to the streams. */
export function decodeDown(ctx: CudaContext, arg: Omit<DecodeDownArg, "splits" | "sharedSplits">): void {
  const { down, sharedDown, used } = arg;
  const pair = pairWork(down);
  const works = [{ ...pair, units: used * pair.units, bytes: used * pair.bytes }, pairWork(sharedDown)];
  const most = EXPERT_BLOCKS * ctx.device.multiprocessors;
  const [splits, sharedSplits] = splitWorks(works, most);
  const tables = tableBytes([down, sharedDown]);
  const rows = stagedBytes(down, used);
  const sharedBytes = STREAM_PARTIAL_BYTES + tables + rows + stagedBytes(sharedDown);
  const blocks = Math.min(most, taskCount(works, [splits, sharedSplits]));
  launch(ctx, "decode_down", blocks, sharedBytes, [
    decodeDownStruct({ ...arg, splits, sharedSplits }),
    { i32: tables },
    { i32: rows },
  ]);
}

/** The block's input from the streams and their partial sums. */
export function hyperJoin(ctx: CudaContext, join: HyperJoinArg): void {
  const blocks = Math.ceil(join.hidden / STREAM_THREADS) + (join.comb === null ? 0 : 1);
  launch(ctx, "hyper_join", blocks, 0, [hyperJoinStruct(join)]);
}

/** Partial sums of streams that no block has written. */
export function hyperStart(ctx: CudaContext, tail: HyperTailArg): void {
  launch(ctx, "hyper_start", Math.ceil(tail.hidden / 128), 0, [hyperTailStruct(tail)], 128);
}

/** Norms and rotation of queries and key, the key's row in the window. */
export function decodeRows(ctx: CudaContext, rows: DecodeRowsArg): void {
  const warps = rows.heads + rows.indexerHeads + 1;
  launch(ctx, "decode_rows", Math.ceil(warps / 4), 0, [decodeRowsStruct(rows)], 128);
}
