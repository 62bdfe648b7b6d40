// What a check of CUDA kernels against the addon's CPU kernels is given and gives back.
import type { CudaContext } from "../../src/backend/cuda/context.ts";
import type { DeviceBuffer, DeviceMemory } from "../../src/backend/cuda/device-memory.ts";
import { floatsOfRows, type RowParts, rowsOfFloats } from "../../src/backend/cuda/half-rows.ts";
import type { DeviceOptions } from "../../src/backend/cuda/open-device.ts";
import type { NativeKernels, Workspace } from "../../src/backend/native-kernels.ts";

/** One comparison: it holds when `error` is at most `bound` (an error that is no number never is). */
export interface CheckRow {
  name: string;
  error: number;
  bound: number;
}

/** A named group of comparisons. */
export interface KernelCheck {
  name: string;
  run(bench: CheckBench): CheckRow[] | Promise<CheckRow[]>;
}

/** Device and oracle, and the device buffers of the check under way. */
export class CheckBench {
  readonly ctx: CudaContext;
  readonly cpu: NativeKernels;
  readonly workspace: Workspace;
  /** What opens the same device again. */
  readonly deviceOptions: DeviceOptions;
  readonly #memory: DeviceMemory;

  constructor(
    ctx: CudaContext,
    cpu: NativeKernels,
    workspace: Workspace,
    memory: DeviceMemory,
    deviceOptions: DeviceOptions = { driver: ctx.stream.driver },
  ) {
    this.deviceOptions = deviceOptions;
    this.ctx = ctx;
    this.cpu = cpu;
    this.workspace = workspace;
    this.#memory = memory;
  }

  /** A device copy. */
  up(values: ArrayBufferView): DeviceBuffer {
    const buffer = this.#memory.allocate("check", values.byteLength);
    this.ctx.stream.write(buffer, values);
    return buffer;
  }

  /** A device copy of rows of `width` values as so many halves per value. */
  upRows(values: Float32Array, width: number, parts: RowParts): DeviceBuffer {
    return this.up(rowsOfFloats(values, width, parts));
  }

  /** Memory that holds NaN in float32 and float16, so that what a kernel leaves out shows. */
  room(bytes: number): DeviceBuffer {
    return this.up(new Uint8Array(bytes).fill(0xff));
  }

  floats(buffer: DeviceBuffer, count: number): Float32Array {
    return this.ctx.stream.read(buffer, new Float32Array(count));
  }

  ints(buffer: DeviceBuffer, count: number): Int32Array {
    return this.ctx.stream.read(buffer, new Int32Array(count));
  }

  /** `count` values of rows of `width`. */
  rows(buffer: DeviceBuffer, count: number, width: number, parts: RowParts): Float32Array {
    return floatsOfRows(this.ctx.stream.read(buffer, new Uint16Array(parts * count)), width, parts);
  }

  /** Frees the buffers of a check. */
  close(): void {
    this.#memory.close();
  }
}

/** Values [rows, width] as rows of so many halves per value hold them. */
export function roundedRows(values: Float32Array, width: number, parts: RowParts): Float32Array {
  return floatsOfRows(rowsOfFloats(values, width, parts), width, parts);
}

/** Largest difference over the largest finite expected value (at least 1e-30). Both NaN, or the same infinity: equal. */
export function largestError(found: Float32Array, expected: Float32Array): number {
  let difference = 0;
  let largest = 1e-30;
  for (let i = 0; i < expected.length; i++) {
    if (Object.is(found[i], expected[i])) continue;
    const apart = Math.abs(found[i] - expected[i]);
    if (Number.isNaN(apart) || apart === Number.POSITIVE_INFINITY) return Number.POSITIVE_INFINITY;
    if (apart > difference) difference = apart;
  }
  for (const value of expected) {
    if (Number.isFinite(value) && Math.abs(value) > largest) largest = Math.abs(value);
  }
  return difference / largest;
}

/** Largest difference; NaN where one is. */
export function largestDifference(found: Float32Array, expected: Float32Array): number {
  return expected.reduce((worst, value, i) => Math.max(worst, Math.abs(found[i] - value)), 0);
}

/** How many places differ. */
export function countDifferent(found: Int32Array, expected: Int32Array): number {
  return expected.reduce((sum, value, i) => sum + (found[i] === value ? 0 : 1), 0);
}
