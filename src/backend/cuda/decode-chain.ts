// A chain of steps that decode one token, in one launch (native/cuda/decode-chain.cu): how each step's work is cut, and where its
// shared memory goes.
import { assert } from "../../core/errors.ts";
import { CHAIN_KERNELS, chainKernel } from "./chain-kernels.ts";
import type { CudaContext } from "./context.ts";
import { canStream } from "./decode-fit.ts";
import {
  blocksOf,
  type ChainShape,
  chainShape,
  cutDown,
  cutWorks,
  pairWork,
  STREAM_THREADS,
  type StreamRoom,
  stagedBytes,
  streamRoom,
} from "./decode-plans.ts";
import {
  type ChainStepArg,
  type DecodeChainArg,
  type DecodeDownArg,
  type DecodeRouteArg,
  type DecodeUpArg,
  decodeChainStruct,
  MOST_CHAIN_PRODUCTS,
  MOST_CHAIN_STEPS,
  MOST_STREAM_PRODUCTS,
  type StreamProductArg,
  type StreamProductsArg,
} from "./decode-structs.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { CudaModelWeights } from "./pass.ts";

/** A product: what is left out is null. */
export type StreamProduct = Pick<StreamProductArg, "matrix"> &
  Partial<Omit<StreamProductArg, "splitShift" | "firstShare">>;

/** What else a step of products does. */
export type StreamOptions = Partial<Omit<StreamProductsArg, "items">>;

const NOTHING = {
  x: null,
  quantized: null,
  out: null,
  outQuantized: null,
  outWeight: null,
  outSquares: null,
};

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

function emptyChain(): Mutable<DecodeChainArg> & { steps: ChainStepArg[]; products: StreamProductsArg[] } {
  return { steps: [], products: [], route: null, up: null, down: null };
}

/**
 * How a token of this model is decoded on this device by chains; null where it cannot be. All blocks of a chain must be resident at
 * once, so that the driver is asked. `workInput`: room for a token's int8 rows.
 */
export function openChain(
  { module, device }: CudaContext,
  model: CudaModelWeights,
  workInput: DeviceBuffer,
): ChainShape | null {
  const most = chainShape(device);
  const residents = CHAIN_KERNELS.map((name) =>
    module.residentBlocks(name, STREAM_THREADS, most.sharedBytes),
  );
  const resident = Math.min(...residents);
  const shape = { ...most, blocksPerMultiprocessor: Math.min(most.blocksPerMultiprocessor, resident) };
  return resident > 0 && canStream(model, workInput, shape) ? shape : null;
}

/** Steps, each of which needs all of the one before. `launch` queues what was added since the last launch. */
export class DecodeChain {
  readonly #ctx: CudaContext;
  readonly #shape: ChainShape;
  #chain = emptyChain();

  constructor(ctx: CudaContext, shape: ChainShape) {
    this.#ctx = ctx;
    this.#shape = shape;
  }

  /** Products of one row each, up to eight in a step; `tail` and `join` belong to the first. */
  products(products: readonly StreamProduct[], options: StreamOptions = {}): void {
    for (let first = 0; first < products.length; first += MOST_STREAM_PRODUCTS) {
      const some = products.slice(first, first + MOST_STREAM_PRODUCTS);
      this.#products(some, first === 0 ? options : { norm: options.norm });
    }
  }

  #products(
    products: readonly StreamProduct[],
    { tail = null, join = null, norm = null }: StreamOptions,
  ): void {
    const works = products.map(({ matrix }) => pairWork(matrix));
    const { shifts, perBlock } = cutWorks(works, this.#blocks);
    let firstShare = 0;
    const items = products.map((product, i) => {
      const item = { ...NOTHING, ...product, splitShift: shifts[i], firstShare };
      if (shifts[i] > 0) firstShare += works[i].groups << shifts[i];
      return item;
    });
    const matrices = products.map(({ matrix }) => matrix);
    const rowBytes = Math.max(...matrices.map((matrix) => stagedBytes(matrix)));
    if (this.#chain.products.length === MOST_CHAIN_PRODUCTS) this.launch();
    this.#add("products", perBlock, streamRoom(this.#shape, matrices, rowBytes));
    this.#chain.products.push({ items, tail, join, norm });
  }

  /** Router, the choice of experts, and the shared expert's gate and up. */
  route(route: Omit<DecodeRouteArg, "routerShift" | "sharedShift">): void {
    const { router, sharedGate, sharedUp } = route;
    const gated = {
      groups: sharedGate.rows / 16,
      units: pairWork(sharedGate).units,
      bytes: sharedGate.sliceBytes + sharedUp.sliceBytes,
    };
    // The last block has the join's balance to itself.
    const routerCut = cutWorks([pairWork(router)], Math.max(1, this.#blocks >> 2));
    const gatedCut = cutWorks([gated], Math.max(1, this.#blocks - 1 - routerCut.blocks));
    const rowBytes = Math.max(stagedBytes(router), stagedBytes(sharedGate));
    this.#add("route", routerCut.blocks, streamRoom(this.#shape, [router, sharedGate], rowBytes));
    const [routerShift, sharedShift] = [routerCut.shifts[0], gatedCut.shifts[0]];
    this.#chain.route = { ...route, routerShift, sharedShift };
  }

  /** Gate and up of the chosen experts. */
  up(up: DecodeUpArg): void {
    const perBlock = Math.ceil((up.used * up.gate.rows) / 16 / this.#blocks);
    this.#add("up", perBlock, streamRoom(this.#shape, [up.gate], stagedBytes(up.gate)));
    assert(this.#chain.route !== null, "up chooses experts by what its launch routed");
    this.#chain.up = up;
  }

  /** Down of the chosen experts and the shared one, their weighted sum, and the write to the streams. */
  down(arg: Omit<DecodeDownArg, "shift" | "sharedShift">): void {
    const { down, sharedDown, used } = arg;
    const { experts: cut, shared: sharedCut } = cutDown(this.#shape, down, sharedDown, used);
    const rowBytes = Math.max(stagedBytes(down, used), stagedBytes(sharedDown));
    this.#add("down", cut.blocks, streamRoom(this.#shape, [down, sharedDown], rowBytes));
    assert(this.#chain.up !== null, "down reads the experts that its launch chose");
    this.#chain.down = { ...arg, shift: cut.shifts[0], sharedShift: sharedCut.shifts[0] };
  }

  /** Queues the steps added so far, if any. */
  launch(): void {
    const chain = this.#chain;
    if (chain.steps.length === 0) return;
    this.#chain = emptyChain();
    const sharedBytes = Math.max(...chain.steps.map(({ room }) => room.sharedBytes));
    const { module, stream } = this.#ctx;
    const grid = [this.#blocks, 1, 1] as const;
    const args = [decodeChainStruct(chain)];
    module.launch(stream, chainKernel(chain), grid, [STREAM_THREADS, 1, 1], sharedBytes, args, true);
  }

  get #blocks(): number {
    return blocksOf(this.#shape);
  }

  #add(kind: ChainStepArg["kind"], cut: number, room: StreamRoom): void {
    assert(room.stages > 0, `a step of ${kind} has room for its weights`);
    if (this.#chain.steps.length === MOST_CHAIN_STEPS) this.launch();
    this.#chain.steps.push({ kind, cut, item: this.#chain.products.length, room });
  }
}
