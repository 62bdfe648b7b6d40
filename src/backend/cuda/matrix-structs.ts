// The parameter structs of native/cuda/products.cuh, byte for byte. Every struct is a multiple of 8 bytes.
import { assert } from "../../core/errors.ts";
import type { Addressed, KernelArg } from "./kernel-args.ts";
import type { DeviceMatrix } from "./matrix.ts";

/** kPanelRows of cpu/packed_layout.h. */
const PANEL_ROWS = 16;

/** Most matrices of one launch. */
export const MAX_PRODUCTS = 8;

/** Activations: float32 and, where a product needs it, the int8 form (null elsewhere). */
export interface InputArg {
  x: Addressed;
  quantized: Addressed | null;
  rows: number;
  cols: number;
}

/** Device addresses of the parts of an expert grouping. */
export interface RoutingArg {
  begin: Addressed;
  rowToken: Addressed;
  slotRow: Addressed;
  active: Addressed;
  activeCount: Addressed;
}

/** A matrix and where its product goes. */
export interface ProductArg {
  matrix: DeviceMatrix;
  out: Addressed;
}

/** See `ExpertsUp` in products.cuh. */
export interface ExpertsUpArg {
  gate: DeviceMatrix;
  up: DeviceMatrix;
  sharedGate: DeviceMatrix;
  sharedUp: DeviceMatrix;
  input: InputArg;
  routing: RoutingArg;
  h: Addressed;
  sharedH: Addressed;
  limit: number;
  sharedLimit: number;
}

/** See `ExpertProducts` in products.cuh. Without `shared` only the routed rows are computed. */
export interface ExpertProductsArg {
  matrix: DeviceMatrix;
  input: InputArg;
  routing: RoutingArg;
  out: Addressed;
  gather: boolean;
  shared: { matrix: DeviceMatrix; input: InputArg; out: Addressed } | null;
}

/** struct Input. */
export function inputStruct(input: InputArg): KernelArg {
  return new StructBytes(24).input(input).arg();
}

/** struct Matrix. */
export function matrixStruct(matrix: DeviceMatrix): KernelArg {
  return new StructBytes(32).matrix(matrix).arg();
}

/** struct Product. */
export function productStruct(product: ProductArg): KernelArg {
  return new StructBytes(40).matrix(product.matrix).address(product.out).arg();
}

/** struct Products: 1 to 8. */
export function productsStruct(products: readonly ProductArg[]): KernelArg {
  assert(products.length > 0 && products.length <= MAX_PRODUCTS, `${products.length} products in a launch`);
  const bytes = new StructBytes(40 * MAX_PRODUCTS + 8);
  for (const { matrix, out } of products) bytes.matrix(matrix).address(out);
  return bytes
    .skip(40 * (MAX_PRODUCTS - products.length))
    .i32(products.length)
    .i32(0)
    .arg();
}

/** struct ExpertsUp. */
export function expertsUpStruct(e: ExpertsUpArg): KernelArg {
  const bytes = new StructBytes(216).matrix(e.gate).matrix(e.up).matrix(e.sharedGate).matrix(e.sharedUp);
  bytes.input(e.input).routing(e.routing).address(e.h).address(e.sharedH);
  return bytes.f32(e.limit).f32(e.sharedLimit).arg();
}

/** struct ExpertProducts. */
export function expertProductsStruct(e: ExpertProductsArg): KernelArg {
  const bytes = new StructBytes(176).matrix(e.matrix).matrix(e.shared?.matrix ?? e.matrix);
  bytes
    .input(e.input)
    .input(e.shared?.input ?? e.input)
    .routing(e.routing);
  return bytes
    .address(e.out)
    .address(e.shared?.out ?? null)
    .i32(e.gather ? 1 : 0)
    .i32(0)
    .arg();
}

/** Fields of a struct, one after another. */
export class StructBytes {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: number) {
    this.#bytes = new Uint8Array(bytes);
    this.#view = new DataView(this.#bytes.buffer);
  }

  address(value: Addressed | null): this {
    return this.i64(value?.address ?? 0);
  }

  i64(value: number): this {
    this.#view.setBigInt64(this.#at, BigInt(value), true);
    return this.skip(8);
  }

  i32(value: number): this {
    this.#view.setInt32(this.#at, value, true);
    return this.skip(4);
  }

  f32(value: number): this {
    this.#view.setFloat32(this.#at, value, true);
    return this.skip(4);
  }

  matrix({ buffer, sliceBytes, type, rows, cols }: DeviceMatrix): this {
    const panelBytes = sliceBytes / Math.ceil(rows / PANEL_ROWS);
    return this.address(buffer).i64(sliceBytes).i32(type).i32(rows).i32(cols).i32(panelBytes);
  }

  input({ x, quantized, rows, cols }: InputArg): this {
    return this.address(x).address(quantized).i32(rows).i32(cols);
  }

  routing(r: RoutingArg): this {
    return this.address(r.begin)
      .address(r.rowToken)
      .address(r.slotRow)
      .address(r.active)
      .address(r.activeCount);
  }

  skip(bytes: number): this {
    this.#at += bytes;
    return this;
  }

  /** Throws when fields are missing: the struct would not be what the kernel expects. */
  arg(): KernelArg {
    assert(this.#at === this.#bytes.length, `struct of ${this.#at} bytes, expected ${this.#bytes.length}`);
    return { struct: this.#bytes };
  }
}
