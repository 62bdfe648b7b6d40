// Device memory: few large allocations, everything else views of them.
import { assert, Ds4Error } from "../../core/errors.ts";
import { alignUp } from "../../core/units.ts";
import type { CudaDriver } from "./driver.ts";

/** Views that kernels read in 16-byte pieces or more start on these. */
export const DEVICE_ALIGNMENT_BYTES = 256;

/** A range of device memory. Owns nothing. */
export class DeviceBuffer {
  readonly address: number;
  readonly bytes: number;

  constructor(address: number, bytes: number) {
    this.address = address;
    this.bytes = bytes;
  }

  /** A part of this range; to its end without `bytes`. */
  slice(offsetBytes: number, bytes: number = this.bytes - offsetBytes): DeviceBuffer {
    assert(
      Number.isInteger(offsetBytes) && offsetBytes >= 0 && bytes >= 0 && offsetBytes + bytes <= this.bytes,
      `device slice ${offsetBytes}+${bytes} of ${this.bytes} bytes`,
    );
    return new DeviceBuffer(this.address + offsetBytes, bytes);
  }
}

/** One allocation. */
export interface DeviceAllocation {
  /** For messages and tests. */
  readonly label: string;
  readonly buffer: DeviceBuffer;
}

/**
 * All allocations of one owner, freed together. Throws `memory` when the device is full; what was taken before stays
 * until `close`.
 */
export class DeviceMemory {
  readonly #driver: CudaDriver;
  readonly #allocations: DeviceAllocation[] = [];

  constructor(driver: CudaDriver) {
    this.#driver = driver;
  }

  /** Bytes held. */
  get bytes(): number {
    return this.#allocations.reduce((sum, { buffer }) => sum + buffer.bytes, 0);
  }

  /** One allocation of `bytes`; none, an empty buffer at address 0, for 0 bytes. */
  allocate(label: string, bytes: number): DeviceBuffer {
    if (bytes === 0) return new DeviceBuffer(0, 0);
    const buffer = new DeviceBuffer(this.#driver.alloc(bytes), bytes);
    this.#allocations.push({ label, buffer });
    return buffer;
  }

  /** One allocation with an aligned part for each entry of `sizes` (bytes by name). */
  allocateParts<Name extends string>(
    label: string,
    sizes: Readonly<Record<Name, number>>,
  ): Record<Name, DeviceBuffer> {
    const entries = Object.entries<number>(sizes);
    const all = this.allocate(label, partsBytes(sizes));
    let offset = 0;
    const parts = entries.map(([name, bytes]) => {
      const part = all.slice(offset, bytes);
      offset += alignUp(bytes, DEVICE_ALIGNMENT_BYTES);
      return [name, part];
    });
    return Object.fromEntries(parts) as Record<Name, DeviceBuffer>;
  }

  /** Frees the allocation that begins with `buffer` early. */
  release(buffer: DeviceBuffer): void {
    const index = this.#allocations.findIndex((each) => each.buffer.address === buffer.address);
    if (index < 0) return;
    this.#allocations.splice(index, 1);
    this.#driver.free(buffer.address);
  }

  /** Frees everything, last first. A driver that fails here has lost the memory anyway: its error is the last one. */
  close(): void {
    let failure: unknown;
    for (const { buffer } of this.#allocations.splice(0).reverse()) {
      try {
        this.#driver.free(buffer.address);
      } catch (error) {
        failure = error;
      }
    }
    if (failure !== undefined) throw failure;
  }

  /** `close` for the way out of another failure, which is the one to report. */
  closeAfterFailure(): void {
    try {
      this.close();
    } catch (error) {
      if (!(error instanceof Ds4Error)) throw error;
    }
  }
}

/** Bytes of an allocation with an aligned part for each size. */
export function partsBytes(sizes: Readonly<Record<string, number>>): number {
  return Object.values(sizes).reduce((sum, bytes) => sum + alignUp(bytes, DEVICE_ALIGNMENT_BYTES), 0);
}
