// Launches of the mixture of experts: grouping, gate and up, down and the weighted sum.

import { alignUp } from "../../core/units.ts";
import type { CudaContext } from "./context.ts";
import { DEVICE_ALIGNMENT_BYTES, type DeviceBuffer } from "./device-memory.ts";
import { blocks } from "./kernel-args.ts";
import {
  decodeShape,
  type ExpertSizes,
  expertsDownSizes,
  expertsUpSizes,
  MAX_DECODE_ROWS,
  routingParts,
  TILE_SHARED_BYTES,
  TILE_THREADS,
  tileKind,
  usesInt8,
} from "./matrix-plans.ts";
import { multiplyPrepared, prepareInput, TILES } from "./matrix-steps.ts";
import {
  type ExpertProductsArg,
  type ExpertsUpArg,
  expertProductsStruct,
  expertsUpStruct,
} from "./matrix-structs.ts";
import type { ExpertGroups, ExpertMatrices } from "./steps.ts";

/** Groups the slots of ids [tokens, used] by expert ascending, within one in the order of the slots. */
export function groupByExpert(
  { module, stream }: CudaContext,
  ids: DeviceBuffer,
  tokens: number,
  used: number,
  experts: number,
  routing: ExpertGroups,
): void {
  const r = routingParts(routing.buffer, tokens, used, experts);
  // As many warps as have work, and as have room for their counts.
  const room = Math.max(1, Math.floor((48 * 1024) / (4 * experts)));
  const warps = Math.min(32, room, blocks(tokens * used, 32));
  module.launch(stream, "group_by_expert", [1, 1, 1], [32 * warps, 1, 1], 4 * experts * warps, [
    ...[{ p: ids }, { i32: tokens }, { i32: used }, { i32: experts }],
    ...[{ p: r.begin }, { p: r.rowToken }, { p: r.slotRow }, { p: r.active }, { p: r.activeCount }],
  ]);
}

/**
 * h [tokens * used, inner], rows in the grouping's order, and sharedH [tokens, sharedInner]. `routing` holds the grouping
 * of `ids` (`groupByExpert`).
 */
export function expertsUp(
  ctx: CudaContext,
  experts: ExpertMatrices,
  tokens: number,
  used: number,
  limit: number,
  sharedLimit: number,
  x: DeviceBuffer,
  _ids: DeviceBuffer,
  routing: ExpertGroups,
  h: DeviceBuffer,
  sharedH: DeviceBuffer,
): void {
  const { gate, up, sharedGate, sharedUp } = experts;
  const sizes = sizesOf(experts, tokens, used);
  const parts = routingParts(routing.buffer, tokens, used, gate.slices);
  const [inputRoom, upRoom] = split(parts.scratch, Object.values(expertsUpSizes(sizes)));
  const matrices = [gate, up, sharedGate, sharedUp];
  const input = prepareInput(ctx, x, tokens, gate.cols, matrices, { buffer: inputRoom });
  const arg = { gate, up, sharedGate, sharedUp, input, routing: parts, h, sharedH, limit, sharedLimit };
  const pairable = gate.type === up.type && sharedGate.type === sharedUp.type;
  if (pairable && tokens <= MAX_DECODE_ROWS) {
    upFew(ctx, arg, used);
    return;
  }
  const { module, stream } = ctx;
  if (gate.type === up.type && usesInt8(gate)) {
    const grid = [blocks(gate.rows, 64), activeAtMost(sizes), 1] as const;
    module.launch(stream, "experts_up_tiles", grid, [TILE_THREADS, 1, 1], TILE_SHARED_BYTES, [
      expertsUpStruct(arg),
    ]);
  } else {
    const common = { input, routing: parts, gather: true, shared: null };
    grouped(ctx, sizes, { ...common, matrix: gate, out: h });
    grouped(ctx, sizes, { ...common, matrix: up, out: upRoom });
    activate(ctx, h, upRoom, tokens * used * gate.rows, limit);
  }
  if (sharedGate.type === sharedUp.type && usesInt8(sharedGate) && tokens > MAX_DECODE_ROWS) {
    const grid = [blocks(sharedGate.rows, 64), blocks(tokens, 64), 1] as const;
    const args = [expertsUpStruct(arg), { i32: tokens }];
    module.launch(stream, "shared_up_tiles", grid, [TILE_THREADS, 1, 1], TILE_SHARED_BYTES, args);
  } else {
    multiplyPrepared(ctx, input, [
      { matrix: sharedGate, out: sharedH },
      { matrix: sharedUp, out: upRoom },
    ]);
    activate(ctx, sharedH, upRoom, tokens * sharedGate.rows, sharedLimit);
  }
}

function upFew({ module, stream, device }: CudaContext, arg: ExpertsUpArg, used: number): void {
  const { gate, up, sharedGate, sharedUp, input } = arg;
  const tasks = sharedGate.rows / 16 + (Math.min(gate.slices, input.rows * used) * gate.rows) / 16;
  const shape = decodeShape(device.multiprocessors, [gate, up, sharedGate, sharedUp], tasks, false);
  const name = input.rows === 1 ? "experts_up_row" : "experts_up_rows";
  const args = [expertsUpStruct(arg), ...(input.rows === 1 ? [] : [{ i32: input.rows }])];
  module.launch(stream, name, [shape.blocks, 1, 1], [shape.threads, 1, 1], shape.sharedBytes, args);
}

function activate(
  { module, stream }: CudaContext,
  gate: DeviceBuffer,
  up: DeviceBuffer,
  count: number,
  limit: number,
) {
  const args = [{ p: gate }, { p: up }, { i64: count }, { f32: limit }, { p: gate }];
  module.launch(stream, "swiglu_values", [blocks(count, 256), 1, 1], [256, 1, 1], 0, args);
}

/** out [tokens, hidden] = shared expert + sum over slots of weight * expert, slots in routing order. */
export function expertsDown(
  ctx: CudaContext,
  experts: ExpertMatrices,
  tokens: number,
  used: number,
  h: DeviceBuffer,
  sharedH: DeviceBuffer,
  weights: DeviceBuffer,
  routing: ExpertGroups,
  out: DeviceBuffer,
): void {
  const { down, sharedDown } = experts;
  const sizes = sizesOf(experts, tokens, used);
  const parts = routingParts(routing.buffer, tokens, used, down.slices);
  const [inputRoom, sharedRoom, results] = split(parts.scratch, Object.values(expertsDownSizes(sizes)));
  const input = prepareInput(ctx, h, tokens * used, down.cols, [down], { buffer: inputRoom });
  const sharedInput = prepareInput(ctx, sharedH, tokens, sharedDown.cols, [sharedDown], {
    buffer: sharedRoom,
  });
  const product = { matrix: down, input, routing: parts, out: results, gather: false };
  if (tokens <= MAX_DECODE_ROWS) {
    grouped(ctx, sizes, { ...product, shared: { matrix: sharedDown, input: sharedInput, out } });
  } else {
    grouped(ctx, sizes, { ...product, shared: null });
    multiplyPrepared(ctx, sharedInput, [{ matrix: sharedDown, out }]);
  }
  ctx.module.launch(ctx.stream, "combine_experts", [blocks(down.rows, 512), tokens, 1], [128, 1, 1], 0, [
    ...[{ p: results }, { p: weights }, { p: parts.slotRow }, { i32: used }, { i32: down.rows }, { p: out }],
  ]);
}

/** One grouped product, by the kernel that fits its type and the batch. */
function grouped(ctx: CudaContext, sizes: ExpertSizes, product: ExpertProductsArg): void {
  const { module, stream, device } = ctx;
  const { matrix, shared } = product;
  const args = [expertProductsStruct(product)];
  const active = activeAtMost(sizes);
  if (sizes.tokens <= MAX_DECODE_ROWS) {
    const pairs = active * blocks(matrix.rows, 32) + (shared ? blocks(shared.matrix.rows, 32) : 0);
    const matrices = shared ? [matrix, shared.matrix] : [matrix];
    const shape = decodeShape(device.multiprocessors, matrices, pairs, false);
    const one = sizes.tokens === 1;
    const name = one ? "expert_products_row" : "expert_products_rows";
    const block = [shape.threads, 1, 1] as const;
    const all = one ? args : [...args, { i32: sizes.tokens }];
    module.launch(stream, name, [shape.blocks, 1, 1], block, shape.sharedBytes, all);
  } else {
    const { rows: tileRows, threads, sharedBytes, infix } = TILES[tileKind(matrix)];
    const grid = [blocks(matrix.rows, tileRows), active, 1] as const;
    module.launch(stream, `expert_products_${infix}tiles`, grid, [threads, 1, 1], sharedBytes, args);
  }
}

/** Experts that can have rows at all. */
function activeAtMost({ experts, tokens, used }: ExpertSizes): number {
  return Math.min(experts, tokens * used);
}

function sizesOf({ gate, sharedGate }: ExpertMatrices, tokens: number, used: number): ExpertSizes {
  const { slices: experts, rows: inner, cols: hidden } = gate;
  return { tokens, used, experts, hidden, inner, sharedInner: sharedGate.rows };
}

function split(buffer: DeviceBuffer, sizes: readonly number[]): DeviceBuffer[] {
  let offset = 0;
  return sizes.map((bytes) => {
    const part = buffer.slice(offset, bytes);
    offset += alignUp(bytes, DEVICE_ALIGNMENT_BYTES);
    return part;
  });
}
