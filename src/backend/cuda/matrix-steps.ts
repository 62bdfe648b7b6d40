// Launches of the products of dense matrices: see native-kernels.ts for what each step means. Activations are float32 on the
// device. Nothing waits; no launch reads a size that changes between replays of a graph other than the batch's rows.
import type { CudaContext } from "./context.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import { blocks } from "./kernel-args.ts";
import type { DeviceMatrix } from "./matrix.ts";
import {
  decodeShape,
  MAX_DECODE_ROWS,
  quantizedInputBytes,
  TILE_SHARED_BYTES,
  TILE_THREADS,
  tileKind,
  usesInt8,
} from "./matrix-plans.ts";
import {
  type InputArg,
  inputStruct,
  MAX_PRODUCTS,
  matrixStruct,
  type ProductArg,
  productStruct,
  productsStruct,
} from "./matrix-structs.ts";
import type { QuantizedInput } from "./steps.ts";

/** Matrices of no more rows are multiplied by blocks whose warps share the columns. */
const NARROW_ROWS = 64;

/** Writes the int8 form of x [rows, cols], cols a multiple of 32, into `into`. */
export function quantizeRows(
  { module, stream }: CudaContext,
  x: DeviceBuffer,
  rows: number,
  cols: number,
  into: QuantizedInput,
): void {
  const needed = quantizedInputBytes(rows, cols);
  if (cols % 32 !== 0 || into.buffer.bytes < needed) {
    throw new RangeError(
      `quantized input [${rows}, ${cols}]: ${needed} bytes do not fit in ${into.buffer.bytes}`,
    );
  }
  const args = [{ p: x }, { p: into.buffer }, { i32: rows }, { i32: cols }];
  module.launch(stream, "quantize_rows", [blocks(rows * blocks(cols, 128), 8), 1, 1], [256, 1, 1], 0, args);
}

/** The input of products with `matrices`, quantized when one of them needs it. */
export function prepareInput(
  ctx: CudaContext,
  x: DeviceBuffer,
  rows: number,
  cols: number,
  matrices: readonly DeviceMatrix[],
  room: QuantizedInput,
): InputArg {
  if (!matrices.some(usesInt8)) return { x, quantized: null, rows, cols };
  quantizeRows(ctx, x, rows, cols, room);
  return { x, quantized: room.buffer, rows, cols };
}

/** outs[i] [rows, matrices[i].rows] = x [rows, cols] times each matrix. */
export function multiply(
  ctx: CudaContext,
  rows: number,
  x: DeviceBuffer,
  cols: number,
  matrices: readonly DeviceMatrix[],
  outs: readonly DeviceBuffer[],
  input: QuantizedInput,
): void {
  requireColumns(matrices, cols);
  const prepared = prepareInput(ctx, x, rows, cols, matrices, input);
  multiplyPrepared(
    ctx,
    prepared,
    matrices.map((matrix, i) => ({ matrix, out: outs[i] })),
  );
}

/** The same with an input that is prepared: up to eight matrices a launch. */
export function multiplyPrepared(ctx: CudaContext, input: InputArg, products: readonly ProductArg[]): void {
  const decode = input.rows <= MAX_DECODE_ROWS;
  const kinds = decode ? [products] : byTileKind(products);
  for (const kind of kinds) {
    for (let first = 0; first < kind.length; first += MAX_PRODUCTS) {
      const some = kind.slice(first, first + MAX_PRODUCTS);
      if (decode) multiplyFew(ctx, input, some);
      else multiplyMany(ctx, input, some);
    }
  }
}

function multiplyFew(
  { module, stream, device }: CudaContext,
  input: InputArg,
  products: readonly ProductArg[],
): void {
  const { rows } = input;
  const matrices = products.map(({ matrix }) => matrix);
  const pairs = matrices.reduce((sum, matrix) => sum + blocks(matrix.rows, 32), 0);
  const shape = decodeShape(device.multiprocessors, matrices, pairs, rows <= 8);
  const args = [productsStruct(products), inputStruct(input), ...(rows === 1 ? [] : [{ i32: rows }])];
  const name = rows === 1 ? "multiply_row" : "multiply_rows";
  const block = [shape.threads, 1, 1] as const;
  module.launch(stream, name, [shape.blocks, 1, 1], block, shape.sharedBytes, [
    ...args,
    { i32: shape.splits },
  ]);
}

function byTileKind(products: readonly ProductArg[]): ProductArg[][] {
  return Object.values(Object.groupBy(products, ({ matrix }) => tileKind(matrix)));
}

/** Threads, weight rows and shared memory of a tile of each kind of prefill kernel. */
export const TILES = {
  int8: { rows: 128, threads: TILE_THREADS, sharedBytes: TILE_SHARED_BYTES, infix: "" },
  tf32: { rows: 128, threads: 128, sharedBytes: 0, infix: "tf32_" },
  float: { rows: 64, threads: 256, sharedBytes: 0, infix: "float_" },
} as const;

function multiplyMany(
  { module, stream }: CudaContext,
  input: InputArg,
  products: readonly ProductArg[],
): void {
  const kind = tileKind(products[0].matrix);
  const { rows: tileRows, threads, sharedBytes, infix } = TILES[kind];
  const rest = [inputStruct(input), { i32: input.rows }];
  const tokenTiles = blocks(input.rows, 64);
  // Matrices of few rows: as many blocks as there are, each with all its warps on the same rows.
  const isNarrow = ({ matrix }: ProductArg) => kind === "tf32" && matrix.rows <= NARROW_ROWS;
  for (const product of products.filter(isNarrow)) {
    const grid = [blocks(product.matrix.rows, 32), tokenTiles, 1] as const;
    module.launch(stream, "multiply_tf32_narrow", grid, [threads, 1, 1], 0, [
      productStruct(product),
      ...rest,
    ]);
  }
  const wide = products.filter((product) => !isNarrow(product));
  if (wide.length === 0) return;
  const tiles = wide.reduce((sum, { matrix }) => sum + blocks(matrix.rows, tileRows), 0);
  const args = [productsStruct(wide), ...rest];
  module.launch(stream, `multiply_${infix}tiles`, [tiles, tokenTiles, 1], [threads, 1, 1], sharedBytes, args);
}

/** x [rows, groups, cols], out [rows, groups, matrix.rows / groups]: each group has its own rows of the matrix. */
export function multiplyGroups(
  ctx: CudaContext,
  rows: number,
  groups: number,
  matrix: DeviceMatrix,
  x: DeviceBuffer,
  out: DeviceBuffer,
  input: QuantizedInput,
): void {
  const { module, stream, device } = ctx;
  const rank = matrix.rows / groups;
  if (rank % 16 !== 0) throw new RangeError(`groups of ${rank} rows: expected a multiple of 16`);
  const prepared = prepareInput(ctx, x, rows * groups, matrix.cols, [matrix], input);
  const head = [productStruct({ matrix, out }), inputStruct(prepared)];
  const args = [...head, ...(rows === 1 ? [] : [{ i32: rows }]), { i32: groups }];
  if (rows <= MAX_DECODE_ROWS) {
    const shape = decodeShape(device.multiprocessors, [matrix], groups * blocks(rank, 32), false);
    const name = rows === 1 ? "multiply_groups_row" : "multiply_groups_rows";
    module.launch(stream, name, [shape.blocks, 1, 1], [shape.threads, 1, 1], shape.sharedBytes, args);
  } else {
    const { rows: tileRows, threads, sharedBytes, infix } = TILES[tileKind(matrix)];
    const grid = [blocks(rank, tileRows), blocks(rows, 64), groups] as const;
    module.launch(stream, `multiply_groups_${infix}tiles`, grid, [threads, 1, 1], sharedBytes, args);
  }
}

/** streams [tokens, copies, cols]: each copy the token's row. An id outside the matrix gives NaN. */
export function embed(
  { module, stream }: CudaContext,
  tokens: number,
  copies: number,
  matrix: DeviceMatrix,
  ids: DeviceBuffer,
  streams: DeviceBuffer,
): void {
  const args = [matrixStruct(matrix), { p: ids }, { i32: copies }, { p: streams }];
  module.launch(stream, "embed_rows", [blocks(matrix.cols, 256), tokens, 1], [256, 1, 1], 0, args);
}

function requireColumns(matrices: readonly DeviceMatrix[], cols: number): void {
  const other = matrices.find((matrix) => matrix.cols !== cols);
  if (other !== undefined) throw new RangeError(`a matrix of ${other.cols} columns, expected ${cols}`);
}
