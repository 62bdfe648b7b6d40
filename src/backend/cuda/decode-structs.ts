// The parameter structs of the kernels that decode one token, byte for byte: native/cuda/decode-chain.cu with its steps
// (decode-products.cuh, decode-route.cuh, decode-experts.cuh, hyper-join.cuh), hyper-tail.cuh, decode-rows.cu. Every struct is a
// multiple of 8 bytes.
import { assert } from "../../core/errors.ts";
import { addCompress, COMPRESS_BYTES } from "./compress-struct.ts";
import type { StreamRoom } from "./decode-plans.ts";
import type { RowParts } from "./half-rows.ts";
import type { Addressed, KernelArg } from "./kernel-args.ts";
import type { DeviceMatrix } from "./matrix.ts";
import { StructBytes } from "./matrix-structs.ts";
import type { CompressArg } from "./sequence-steps.ts";

/** kMostStreamProducts. */
export const MOST_STREAM_PRODUCTS = 8;
/** kMostChainSteps. */
export const MOST_CHAIN_STEPS = 8;
/** kMostChainProducts. */
export const MOST_CHAIN_PRODUCTS = 4;
/** kPartialValues of hyper-tail.cuh: a partial sum for every 32 columns of the hidden size. */
export const PARTIAL_VALUES = 36;

/** The int8 form of a row: `cols` a multiple of 128, or a part of it from column `first` (a multiple of 32) on. */
export interface QuantizedRowArg {
  buffer: Addressed;
  cols: number;
  first: number;
}

/** struct StreamProduct: out [matrix.rows] = x [matrix.cols] times the matrix. */
export interface StreamProductArg {
  matrix: DeviceMatrix;
  /** float32; may be null where only the int8 form is there and all that is needed. */
  x: Addressed | null;
  /** The int8 form of x; null: the kernel makes it where it is needed. */
  quantized: Addressed | null;
  out: Addressed | null;
  outQuantized: QuantizedRowArg | null;
  /** What out and its int8 form are multiplied by, [matrix.rows]. */
  outWeight: Addressed | null;
  /** Sums of squares of 32 results each, before `outWeight`. */
  outSquares: Addressed | null;
  /** 2^splitShift tasks share the columns of a pair of panels. */
  splitShift: number;
  /** Where its shared sums begin. */
  firstShare: number;
}

/** struct HyperTail: what follows a block's output. */
export interface HyperTailArg {
  streams: Addressed; // [4, hidden]
  post: Addressed; // [4]
  comb: Addressed; // [4, 4]
  /** Of the next read: [24 or 4, 4 * hidden]. */
  fn: DeviceMatrix;
  partials: Addressed; // [hidden / 32, PARTIAL_VALUES]
  hidden: number;
}

/** struct StreamProducts. With a tail there is one product, and it writes nothing else. */
export interface StreamProductsArg {
  items: readonly StreamProductArg[];
  tail: HyperTailArg | null;
  /** Where the input comes from, if not from the step before. */
  join: HyperJoinArg | null;
  /** Sums whose total is the inputs' sum of squares: they are scaled to unit mean square. */
  norm: { squares: Addressed; count: number; epsilon: number } | null;
}

/** struct DecodeRoute. */
export interface DecodeRouteArg {
  router: DeviceMatrix;
  sharedGate: DeviceMatrix;
  sharedUp: DeviceMatrix;
  bias: Addressed | null;
  table: Addressed | null;
  experts: number;
  used: number;
  weightsScale: number;
  normalize: boolean;
  mark: number;
  join: HyperJoinArg;
  x: Addressed;
  quantized: Addressed;
  tokenIds: Addressed;
  scores: Addressed;
  sharedH: Addressed;
  sharedQuantized: Addressed;
  ids: Addressed;
  weights: Addressed;
  flag: Addressed;
  sharedLimit: number;
  /** Tasks per pair and per panel are 2^shift. */
  routerShift: number;
  sharedShift: number;
}

/** struct DecodeUp. */
export interface DecodeUpArg {
  gate: DeviceMatrix;
  up: DeviceMatrix;
  quantized: Addressed;
  h: Addressed;
  hQuantized: Addressed;
  limit: number;
  used: number;
}

/** struct DecodeDown. h and sharedH are int8 forms. */
export interface DecodeDownArg {
  down: DeviceMatrix;
  sharedDown: DeviceMatrix;
  tail: HyperTailArg;
  h: Addressed;
  sharedH: Addressed;
  used: number;
  /** Tasks per pair of panels are 2^shift. */
  shift: number;
  sharedShift: number;
}

/** struct HyperJoin. */
export interface HyperJoinArg {
  streams: Addressed;
  partials: Addressed;
  base: Addressed;
  scale: Addressed;
  normWeight: Addressed;
  x: Addressed;
  quantized: Addressed;
  post: Addressed | null;
  comb: Addressed | null;
  parts: number;
  hidden: number;
  iterations: number;
  normEpsilon: number;
  hyperEpsilon: number;
}

/** struct DecodeRows. */
export interface DecodeRowsArg {
  state: Addressed;
  queries: Addressed;
  indexerQueries: Addressed | null;
  kv: Addressed;
  normWeight: Addressed;
  cosines: Addressed;
  sines: Addressed;
  ring: Addressed;
  heads: number;
  dim: number;
  indexerHeads: number;
  indexerDim: number;
  pairs: number;
  ringRows: number;
  epsilon: number;
  rowParts: RowParts;
  /** What the token's rows enter beside: at most `MOST_DECODE_COMPRESSORS`. */
  compressors: readonly CompressArg[];
}

/** The layer's and the indexer's. */
const MOST_DECODE_COMPRESSORS = 2;
const TAIL_BYTES = 72;
const JOIN_BYTES = 96;
const PRODUCT_BYTES = 96;

function tail(bytes: StructBytes, arg: HyperTailArg | null): StructBytes {
  if (arg === null) return bytes.skip(TAIL_BYTES);
  return bytes
    .address(arg.streams)
    .address(arg.post)
    .address(arg.comb)
    .matrix(arg.fn)
    .address(arg.partials)
    .i32(arg.hidden)
    .i32(0);
}

/** struct HyperTail alone. */
export function hyperTailStruct(arg: HyperTailArg): KernelArg {
  return tail(new StructBytes(TAIL_BYTES), arg).arg();
}

/** A step of a chain: ChainKind, then what its work is cut by and where its shared memory goes. */
export interface ChainStepArg {
  kind: "products" | "route" | "up" | "down";
  /** Tasks per block (products, up), or the blocks of the router or of the chosen experts. */
  cut: number;
  /** Which of the chain's products. */
  item: number;
  room: StreamRoom;
}

/** struct DecodeChain. */
export interface DecodeChainArg {
  steps: readonly ChainStepArg[];
  products: readonly StreamProductsArg[];
  route: DecodeRouteArg | null;
  up: DecodeUpArg | null;
  down: DecodeDownArg | null;
}

const CHAIN_KINDS = ["products", "route", "up", "down"];
const STEP_BYTES = 24;
const PRODUCTS_BYTES = PRODUCT_BYTES * MOST_STREAM_PRODUCTS + TAIL_BYTES + JOIN_BYTES + 24;
const ROUTE_BYTES = 320;
const UP_BYTES = 96;
const DOWN_BYTES = 168;
const CHAIN_BYTES =
  STEP_BYTES * MOST_CHAIN_STEPS +
  PRODUCTS_BYTES * MOST_CHAIN_PRODUCTS +
  ROUTE_BYTES +
  UP_BYTES +
  DOWN_BYTES +
  8;

/** struct DecodeChain. What is absent is zero. */
export function decodeChainStruct({ steps, products, route, up, down }: DecodeChainArg): KernelArg {
  assert(steps.length > 0 && steps.length <= MOST_CHAIN_STEPS, `${steps.length} steps in a chain`);
  assert(products.length <= MOST_CHAIN_PRODUCTS, `${products.length} launches of products in a chain`);
  const bytes = new StructBytes(CHAIN_BYTES);
  for (const { kind, cut, item, room } of steps) {
    bytes.i32(CHAIN_KINDS.indexOf(kind)).i32(cut).i32(item);
    bytes.i32(room.tableBytes).i32(room.stageBytes).i32(room.stages);
  }
  bytes.skip(STEP_BYTES * (MOST_CHAIN_STEPS - steps.length));
  for (const each of products) addProducts(bytes, each);
  bytes.skip(PRODUCTS_BYTES * (MOST_CHAIN_PRODUCTS - products.length));
  if (route === null) bytes.skip(ROUTE_BYTES);
  else addRoute(bytes, route);
  if (up === null) bytes.skip(UP_BYTES);
  else addUp(bytes, up);
  if (down === null) bytes.skip(DOWN_BYTES);
  else addDown(bytes, down);
  return bytes.i32(steps.length).i32(0).arg();
}

/** struct StreamProducts. */
function addProducts(
  bytes: StructBytes,
  { items, tail: after, join: before, norm }: StreamProductsArg,
): void {
  assert(items.length > 0 && items.length <= MOST_STREAM_PRODUCTS, `${items.length} products in a step`);
  for (const item of items) {
    const { outQuantized: quantized } = item;
    bytes.matrix(item.matrix).address(item.x).address(item.quantized).address(item.out);
    bytes
      .address(quantized?.buffer ?? null)
      .address(item.outWeight)
      .address(item.outSquares);
    bytes.i32(quantized?.cols ?? 0).i32(quantized?.first ?? 0);
    bytes.i32(item.splitShift).i32(item.firstShare);
  }
  bytes.skip(PRODUCT_BYTES * (MOST_STREAM_PRODUCTS - items.length));
  join(tail(bytes, after), before).address(norm?.squares ?? null);
  bytes
    .f32(norm?.epsilon ?? 0)
    .i32(norm?.count ?? 0)
    .i32(items.length)
    .i32(0);
}

/** struct DecodeRoute. */
function addRoute(bytes: StructBytes, r: DecodeRouteArg): void {
  bytes.matrix(r.router).matrix(r.sharedGate).matrix(r.sharedUp);
  bytes.address(r.bias).address(r.table).i32(r.experts).i32(r.used);
  bytes
    .f32(r.weightsScale)
    .i32(r.normalize ? 1 : 0)
    .i32(r.mark)
    .i32(0);
  join(bytes, r.join).address(r.x).address(r.quantized).address(r.tokenIds).address(r.scores);
  bytes.address(r.sharedH).address(r.sharedQuantized).address(r.ids).address(r.weights).address(r.flag);
  bytes.f32(r.sharedLimit).i32(r.routerShift).i32(r.sharedShift).i32(0);
}

/** struct DecodeUp. */
function addUp(bytes: StructBytes, u: DecodeUpArg): void {
  bytes.matrix(u.gate).matrix(u.up).address(u.quantized);
  bytes.address(u.h).address(u.hQuantized).f32(u.limit).i32(u.used);
}

/** struct DecodeDown. */
function addDown(bytes: StructBytes, d: DecodeDownArg): void {
  tail(bytes.matrix(d.down).matrix(d.sharedDown), d.tail);
  bytes.address(d.h).address(d.sharedH);
  bytes.i32(d.used).i32(d.shift).i32(d.sharedShift).i32(0);
}

/** struct HyperJoin. */
function join(bytes: StructBytes, j: HyperJoinArg | null): StructBytes {
  if (j === null) return bytes.skip(JOIN_BYTES);
  bytes.address(j.streams).address(j.partials).address(j.base).address(j.scale).address(j.normWeight);
  bytes.address(j.x).address(j.quantized).address(j.post).address(j.comb);
  bytes.i32(j.parts).i32(j.hidden).i32(j.iterations);
  return bytes.f32(j.normEpsilon).f32(j.hyperEpsilon).i32(0);
}

/** struct DecodeRows. */
export function decodeRowsStruct(d: DecodeRowsArg): KernelArg {
  const bytes = new StructBytes(96 + MOST_DECODE_COMPRESSORS * COMPRESS_BYTES);
  bytes.address(d.state).address(d.queries).address(d.indexerQueries);
  bytes.address(d.kv).address(d.normWeight).address(d.cosines).address(d.sines).address(d.ring);
  bytes.i32(d.heads).i32(d.dim).i32(d.indexerHeads).i32(d.indexerDim).i32(d.pairs).i32(d.ringRows);
  bytes.f32(d.epsilon).i32(d.rowParts);
  for (let i = 0; i < MOST_DECODE_COMPRESSORS; i++) addCompress(bytes, d.compressors[i] ?? null);
  return bytes.arg();
}
