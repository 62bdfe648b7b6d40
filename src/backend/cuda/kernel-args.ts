// Arguments of kernel launches and their form in memory.
import { assert, Ds4Error } from "../../core/errors.ts";

/** What of a device buffer a kernel sees. */
export interface Addressed {
  readonly address: number;
}

/** One parameter of a kernel. `struct`: passed by value, laid out as the kernel's compiler does. */
export type KernelArg =
  | { p: Addressed | null }
  | { address: number }
  | { i32: number }
  | { u32: number }
  | { i64: number }
  | { f32: number }
  | { struct: Uint8Array };

/** Blocks of a grid that covers `values` with `perBlock` each. */
export function blocks(values: number, perBlock: number): number {
  return Math.ceil(values / perBlock);
}

/** CUDA's own limit on all devices that the kernels are compiled for, since 12.1. */
const MAX_PARAMETER_BYTES = 32_764;
const MAX_PARAMETERS = 128;
const SLOT_BYTES = 16;

/**
 * Parameters and the array of pointers to them that a launch takes. Reused: the driver copies parameters before a
 * launch returns. `addressOf` tells where memory lies; it must not move.
 */
export class ParameterBlock {
  readonly #values: DataView;
  readonly #bytes: Uint8Array;
  readonly #pointers: BigUint64Array;
  readonly #base: bigint;
  /** Address of the array of pointers. */
  readonly pointersAddress: number;

  constructor(addressOf: (memory: ArrayBufferView) => number) {
    this.#bytes = new Uint8Array(new ArrayBuffer(MAX_PARAMETER_BYTES));
    this.#values = new DataView(this.#bytes.buffer);
    this.#pointers = new BigUint64Array(new ArrayBuffer(8 * MAX_PARAMETERS));
    this.#base = BigInt(addressOf(this.#bytes));
    this.pointersAddress = addressOf(this.#pointers);
  }

  /** Writes the parameters of one launch. Throws `cuda` for more than fit. */
  fill(args: readonly KernelArg[]): void {
    if (args.length > MAX_PARAMETERS) throw tooMany(`${args.length} parameters, at most ${MAX_PARAMETERS}`);
    let offset = 0;
    for (let i = 0; i < args.length; i++) {
      const arg = args[i];
      const bytes = "struct" in arg ? arg.struct.length : 8;
      if (offset + bytes > MAX_PARAMETER_BYTES) throw tooMany(`more than ${MAX_PARAMETER_BYTES} bytes`);
      this.#write(offset, arg);
      this.#pointers[i] = this.#base + BigInt(offset);
      offset += Math.ceil(bytes / SLOT_BYTES) * SLOT_BYTES;
    }
  }

  /** The bytes that the last `fill` wrote, for tests. */
  get bytes(): Uint8Array {
    return this.#bytes;
  }

  #write(offset: number, arg: KernelArg): void {
    const values = this.#values;
    if ("p" in arg) this.#writeAddress(offset, arg.p?.address ?? 0);
    else if ("address" in arg) this.#writeAddress(offset, arg.address);
    else if ("i32" in arg) values.setInt32(offset, whole(arg.i32, -(2 ** 31), 2 ** 31), true);
    else if ("u32" in arg) values.setUint32(offset, whole(arg.u32, 0, 2 ** 32), true);
    else if ("i64" in arg) values.setBigInt64(offset, BigInt(arg.i64), true);
    else if ("f32" in arg) values.setFloat32(offset, arg.f32, true);
    else this.#bytes.set(arg.struct, offset);
  }

  #writeAddress(offset: number, address: number): void {
    this.#values.setUint32(offset, address % 2 ** 32, true);
    this.#values.setUint32(offset + 4, Math.floor(address / 2 ** 32), true);
  }
}

/** Bytes of CUlaunchConfig; the attribute follows. */
const CONFIG_BYTES = 56;
/** Bytes of CUlaunchAttribute: its id, and from 8 on its value. */
const ATTRIBUTE_BYTES = 72;
/** CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION. */
const PROGRAMMATIC_SERIALIZATION = 6;

/** The configuration of launches that may overlap with the work before them. Reused; it must not move. */
export class OverlapConfig {
  readonly #bytes = new Uint8Array(new ArrayBuffer(CONFIG_BYTES + ATTRIBUTE_BYTES));
  readonly #values = new DataView(this.#bytes.buffer);

  constructor(addressOf: (memory: ArrayBufferView) => number) {
    this.#values.setBigUint64(40, BigInt(addressOf(this.#bytes) + CONFIG_BYTES), true);
    this.#values.setUint32(48, 1, true);
    this.#values.setUint32(CONFIG_BYTES, PROGRAMMATIC_SERIALIZATION, true);
    this.#values.setInt32(CONFIG_BYTES + 8, 1, true);
  }

  /** The configuration of one launch. */
  fill(
    grid: readonly [number, number, number],
    block: readonly [number, number, number],
    sharedBytes: number,
    stream: number,
  ): Uint8Array {
    [...grid, ...block, sharedBytes].forEach((value, index) => {
      this.#values.setUint32(4 * index, value, true);
    });
    this.#values.setBigUint64(32, BigInt(stream), true);
    return this.#bytes;
  }
}

function whole(value: number, from: number, below: number): number {
  assert(Number.isInteger(value) && value >= from && value < below, `kernel argument ${value}`);
  return value;
}

function tooMany(found: string): Ds4Error {
  return new Ds4Error("cuda", `the parameters of a kernel do not fit: ${found}`);
}
