// Launches of everything that is no matrix product: hyper-connections, norms, rotation, compressor, indexer, attention,
// router. Arguments mean what they mean in native-kernels.ts, on device memory: activations float32, window rings and
// compressed entries in parts (half-rows.ts). Nothing waits; failures appear when the stream is synchronized. Steps of one sequence
// take its `DecodeState` (position, rows, slots) from device memory: `state` must hold what `count` says.
import { compressBlocks, compressStruct } from "./compress-struct.ts";
import type { CudaContext } from "./context.ts";
import { MOST_EXPERTS, MOST_USED_EXPERTS } from "./decode-plans.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { RowParts } from "./half-rows.ts";
import { blocks, type KernelArg } from "./kernel-args.ts";
import {
  type AttentionShape,
  planAttention,
  planSelection,
  requireShape,
  type SelectionShape,
} from "./sequence-plans.ts";

const p = (buffer: DeviceBuffer | null): KernelArg => ({ p: buffer });
const i32 = (value: number): KernelArg => ({ i32: value });
const i64 = (value: number): KernelArg => ({ i64: value });
const f32 = (value: number): KernelArg => ({ f32: value });

/** Weights and constants of a hyper-connection read and of the norm after it. */
export interface HyperRead {
  n: number;
  hidden: number;
  base: DeviceBuffer; // [2n + n*n], at the head [n]
  scale: DeviceBuffer; // [3], at the head [1]
  normWeight: DeviceBuffer; // [hidden]
  normEpsilon: number;
  hyperEpsilon: number;
  iterations: number;
}

/** mixes [tokens, 2n + n*n] = streams x fn. Writes x [tokens, hidden], post [tokens, n], comb [tokens, n, n]. */
export function readStreams(
  ctx: CudaContext,
  tokens: number,
  read: HyperRead,
  streams: DeviceBuffer,
  mixes: DeviceBuffer,
  x: DeviceBuffer,
  post: DeviceBuffer,
  comb: DeviceBuffer,
): void {
  // Few tokens: a block of its own for the Sinkhorn steps.
  launchRead(ctx, [tokens, tokens < ctx.device.multiprocessors ? 2 : 1], read, streams, mixes, x, post, comb);
}

/** mixes [tokens, n]; x [tokens, hidden]. */
export function readHead(
  ctx: CudaContext,
  tokens: number,
  read: HyperRead,
  streams: DeviceBuffer,
  mixes: DeviceBuffer,
  x: DeviceBuffer,
): void {
  launchRead(ctx, [tokens, 1], read, streams, mixes, x, null, null);
}

function launchRead(
  { module, stream }: CudaContext,
  [tokens, parts]: readonly [number, number],
  read: HyperRead,
  streams: DeviceBuffer,
  mixes: DeviceBuffer,
  x: DeviceBuffer,
  post: DeviceBuffer | null,
  comb: DeviceBuffer | null,
): void {
  const { n, hidden } = read;
  requireShape(n <= 8, `${n} streams`, "at most 8");
  requireShape(hidden % 4 === 0, `hidden size ${hidden}`, "a multiple of 4");
  const threads = Math.max(64, Math.min(512, blocks(hidden / 4, 32) * 32));
  module.launch(stream, "hyper_read", [tokens, parts, 1], [threads, 1, 1], 0, [
    ...[p(streams), p(mixes), p(read.base), p(read.scale), p(read.normWeight), p(x), p(post), p(comb)],
    ...[i32(n), i32(hidden), f32(read.normEpsilon), f32(read.hyperEpsilon), i32(read.iterations)],
  ]);
}

/** Updates streams [tokens, n, hidden] with a block's out [tokens, hidden]. */
export function writeStreams(
  { module, stream }: CudaContext,
  tokens: number,
  n: number,
  hidden: number,
  streams: DeviceBuffer,
  out: DeviceBuffer,
  post: DeviceBuffer,
  comb: DeviceBuffer,
): void {
  requireShape(n <= 8, `${n} streams`, "at most 8");
  requireShape(hidden % 4 === 0, `hidden size ${hidden}`, "a multiple of 4");
  const args = [p(streams), p(out), p(post), p(comb), i32(n), i32(hidden)];
  module.launch(stream, "hyper_write", [blocks(hidden / 4, 128), tokens, 1], [128, 1, 1], 0, args);
}

/** RMS norm of each row of x [rows, width], in place. */
export function normRows(
  { module, stream }: CudaContext,
  rows: number,
  width: number,
  x: DeviceBuffer,
  weight: DeviceBuffer | null,
  epsilon: number,
): void {
  const threads = Math.min(256, blocks(width, 32) * 32);
  const args = [p(x), p(weight), i32(width), f32(epsilon)];
  module.launch(stream, "norm_rows", [rows, 1, 1], [threads, 1, 1], 0, args);
}

/** cosines, sines [tokens, pairs] of positions [tokens], int32. */
export function ropeTable(
  { module, stream }: CudaContext,
  tokens: number,
  pairs: number,
  positions: DeviceBuffer,
  frequencies: DeviceBuffer,
  cosines: DeviceBuffer,
  sines: DeviceBuffer,
): void {
  const args = [p(positions), p(frequencies), p(cosines), p(sines), i32(tokens), i32(pairs)];
  module.launch(stream, "rope_table", [blocks(tokens * pairs, 128), 1, 1], [128, 1, 1], 0, args);
}

/** rows [tokens, heads, dim]: optional norm per head, then rotation of the last 2 * pairs values. */
export function rotateHeads(
  { module, stream }: CudaContext,
  tokens: number,
  heads: number,
  dim: number,
  pairs: number,
  rows: DeviceBuffer,
  cosines: DeviceBuffer,
  sines: DeviceBuffer,
  normalize: boolean,
  epsilon: number,
  inverse: boolean,
): void {
  const total = tokens * heads;
  module.launch(stream, "rotate_heads", [blocks(total, 4), 1, 1], [128, 1, 1], 0, [
    ...[p(rows), p(cosines), p(sines), i64(total), i32(heads), i32(dim), i32(pairs)],
    ...[i32(normalize ? 1 : 0), f32(epsilon), i32(inverse ? 1 : 0)],
  ]);
}

/** kv [count, dim] float32 to the rows of positions start, start + 1, … of ring [ringRows, parts * dim]. */
export function storeWindow(
  { module, stream }: CudaContext,
  count: number,
  dim: number,
  ringRows: number,
  parts: RowParts,
  state: DeviceBuffer,
  kv: DeviceBuffer,
  ring: DeviceBuffer,
): void {
  const args = [p(state), p(kv), p(ring), i32(parts), i32(ringRows), i32(dim)];
  const threads = Math.min(256, blocks(dim / 2, 32) * 32);
  module.launch(stream, "store_rows", [count, 1, 1], [threads, 1, 1], 0, args);
}

/** One compressor: shape, weights and the sequence's state. */
export interface Compressor {
  ratio: number;
  width: number;
  projected: number;
  pairs: number;
  ape: DeviceBuffer; // [ratio, projected]
  normWeight: DeviceBuffer; // [width]
  normEpsilon: number;
  frequencies: DeviceBuffer; // [pairs]
  /** Two slots of `compressorSlotValues` float32 values each. */
  slots: DeviceBuffer;
  /** Which bit of the state's `slots` names the valid one. Compressors of one ratio flip together. */
  slotBit: number;
  entries: DeviceBuffer; // [capacity / ratio, parts * width]
  rowParts: RowParts;
}

/** Values of one slot: kv [ratio, projected], gate, and where windows overlap previousKv [ratio, width], previousGate. */
export function compressorSlotValues(ratio: number, width: number, projected: number): number {
  return 2 * ratio * (projected > width ? projected + width : projected);
}

/** The `slots` word after a pass: the bit flips when the pass closed a window. */
export function nextSlots(
  slots: number,
  slotBit: number,
  ratio: number,
  start: number,
  count: number,
): number {
  return (start % ratio) + count >= ratio ? slots ^ (1 << slotBit) : slots;
}

/** What rows enter a compressor: kv and gate [count, projected] float32. */
export interface CompressArg {
  compressor: Compressor;
  count: number;
  state: DeviceBuffer;
  kv: DeviceBuffer;
  gate: DeviceBuffer;
}

/** Values of a compressor's row that a block takes: two per thread. */
const MOST_COMPRESS_WIDTH = 512;

/** Writes the entries that the rows close, and the unfinished window's rows. */
export function compress({ module, stream }: CudaContext, arg: CompressArg): void {
  const { width } = arg.compressor;
  requireShape(
    width % 2 === 0 && width <= MOST_COMPRESS_WIDTH,
    `entries of ${width} values`,
    "an even number up to 512",
  );
  const { blocks: all } = compressBlocks(arg);
  const threads = blocks(width / 2, 32) * 32;
  module.launch(stream, "compress", [all, 1, 1], [threads, 1, 1], 0, [compressStruct(arg)], true);
}

/** Buffers of the indexer: queries [count, heads, dim], headWeights [count, heads], entries [*, parts * dim]. */
export interface Selection {
  queries: DeviceBuffer;
  headWeights: DeviceBuffer;
  entries: DeviceBuffer;
  /** Scratch of the plan's sizes (`planSelection`). */
  scores: DeviceBuffer;
  candidates: DeviceBuffer | null;
  selected: DeviceBuffer; // [count, topK] int32, ascending
  counts: DeviceBuffer; // [count] int32
}

/** The topK best entries per token, exactly; ties: the lower index; scores that are no numbers rank last. */
export function selectEntries(
  ctx: CudaContext,
  shape: SelectionShape,
  ratio: number,
  state: DeviceBuffer,
  buffers: Selection,
): void {
  const { module, stream } = ctx;
  const { heads, dim, topK, countTokens } = shape;
  const plan = planSelection(ctx.device, shape);
  const { scores, candidates, selected, counts } = buffers;
  const scale = 1 / Math.sqrt(heads) / Math.sqrt(dim);
  for (let first = 0; first < countTokens; first += plan.rows) {
    const rows = Math.min(plan.rows, countTokens - first);
    const common = [p(state), i32(first)];
    if (shape.mostEntries > topK) {
      module.launch(
        stream,
        plan.scoreKernel,
        [plan.scoreBlocks, rows, 1],
        [plan.scoreThreads, 1, 1],
        plan.sharedBytes,
        [
          ...[...common, p(buffers.queries), p(buffers.headWeights), p(buffers.entries), p(scores)],
          ...[i64(plan.scoreStride), i32(heads), i32(dim), i32(ratio), i32(topK), f32(scale)],
        ],
        true,
      );
    }
    const source = [...common, p(scores), i64(plan.scoreStride), i32(ratio), i32(topK)];
    if (plan.chunks === 0) {
      const args = [...source, p(selected), p(counts)];
      module.launch(stream, "select_entries", [rows, 1, 1], [1024, 1, 1], 0, args, true);
      continue;
    }
    const chunkArgs = [...source, i32(plan.chunk), p(candidates)];
    module.launch(stream, "select_chunks", [plan.chunks, rows, 1], [1024, 1, 1], 0, chunkArgs, true);
    const args = [...source, i32(plan.chunk), i32(plan.chunks), p(candidates), p(selected), p(counts)];
    module.launch(stream, "select_merged", [rows, 1, 1], [1024, 1, 1], 0, args, true);
  }
}

/** Buffers of attention. */
export interface Attention {
  queries: DeviceBuffer; // [count, heads, dim]
  ring: DeviceBuffer; // [ringRows, parts * dim]
  window: number;
  ringRows: number;
  /** 0: no entries. */
  ratio: number;
  entries: DeviceBuffer | null; // [*, parts * dim]
  selected: DeviceBuffer | null; // [count, topK] int32, or null: all visible entries
  counts: DeviceBuffer | null; // [count] int32, with `selected`: topK, or where fewer entries are visible, these
  topK: number;
  sinks: DeviceBuffer; // [heads]
  /** Scratch of the plan's sizes (`planAttention`); not used with one share. */
  parts: DeviceBuffer | null;
  stats: DeviceBuffer | null;
  /** Angles [count, pairs] by which the output is turned back, saving `rotateHeads(inverse)`; null: it is not. */
  turnBack: { cosines: DeviceBuffer; sines: DeviceBuffer; pairs: number } | null;
  out: DeviceBuffer; // [count, heads, dim]
  /** Int8 forms of one token's out, [heads / groupHeads] rows as of `quantizeRows`; dim a multiple of 128. */
  quantized: { buffer: DeviceBuffer; groupHeads: number } | null;
}

/**
 * Attention over the window ring and the compressed entries, one row being key and value of all heads. True if `quantized` was
 * written: where shares are joined.
 */
export function attend(ctx: CudaContext, shape: AttentionShape, state: DeviceBuffer, a: Attention): boolean {
  const { module, stream } = ctx;
  const { heads, dim, countTokens } = shape;
  const plan = planAttention(ctx.device, shape);
  const cosines = p(a.turnBack?.cosines ?? null);
  const sines = p(a.turnBack?.sines ?? null);
  const pairs = i32(a.turnBack?.pairs ?? 0);
  const grid = [plan.shares, plan.headBlocks, countTokens] as const;
  const args = [
    ...[p(state), p(a.queries), p(a.ring), p(a.entries), p(a.selected), p(a.sinks), p(a.out)],
    ...[p(a.parts), p(a.stats), cosines, sines, i32(heads), i32(dim), i32(a.window), i32(a.ringRows)],
    ...[i32(a.ratio), i32(a.topK), pairs, f32(1 / Math.sqrt(dim))],
  ];
  module.launch(stream, plan.kernel, grid, [256, 1, 1], plan.sharedBytes, args, true);
  if (plan.shares === 1) return false;
  const joined = [p(state), p(a.parts), p(a.stats), p(a.sinks), p(a.out), cosines, sines];
  const quantized = p(a.quantized?.buffer ?? null);
  const sizes = [quantized, i32(dim), i32(plan.shares), pairs, i32(a.quantized?.groupHeads ?? 0)];
  module.launch(
    stream,
    "attend_combine",
    [heads, countTokens, 1],
    [512, 1, 1],
    0,
    [...joined, ...sizes],
    true,
  );
  return a.quantized !== null;
}

/** The router's constants and choice: exactly one of `bias` and `table` is given. */
export interface Router {
  experts: number;
  used: number;
  weightsScale: number;
  normalize: boolean;
  bias: DeviceBuffer | null; // [experts]
  table: DeviceBuffer | null; // [vocab, used] int32
}

/**
 * ids (int32) and weights [tokens, used] of logits [tokens, experts]. Where a score is not finite, `flag` (one int32)
 * becomes `mark` (not 0) if it was 0, and that token's ids are valid but mean nothing.
 */
export function route(
  { module, stream }: CudaContext,
  tokens: number,
  router: Router,
  logits: DeviceBuffer,
  tokenIds: DeviceBuffer,
  ids: DeviceBuffer,
  weights: DeviceBuffer,
  flag: DeviceBuffer,
  mark: number,
): void {
  const { experts, used } = router;
  requireShape(experts <= MOST_EXPERTS, `${experts} experts`, `at most ${MOST_EXPERTS}`);
  requireShape(used <= MOST_USED_EXPERTS, `${used} experts used`, `at most ${MOST_USED_EXPERTS}`);
  const warps = tokens < 4 ? 1 : 4;
  module.launch(stream, "route", [blocks(tokens, warps), 1, 1], [warps * 32, 1, 1], warps * experts * 4, [
    ...[p(logits), p(router.bias), p(router.table), p(tokenIds), p(ids), p(weights), p(flag)],
    ...[
      i32(tokens),
      i32(experts),
      i32(used),
      f32(router.weightsScale),
      i32(router.normalize ? 1 : 0),
      i32(mark),
    ],
  ]);
}

/** out [rows] int32: the index of each row's largest logit. `flag` as in `route`, when a row has none. */
export function argmaxRows(
  { module, stream }: CudaContext,
  rows: number,
  vocab: number,
  logits: DeviceBuffer,
  out: DeviceBuffer,
  flag: DeviceBuffer,
  mark: number,
): void {
  const args = [p(logits), p(out), p(flag), i32(vocab), i32(mark)];
  module.launch(stream, "argmax_rows", [rows, 1, 1], [1024, 1, 1], 0, args);
}
