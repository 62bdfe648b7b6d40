// Host memory through which packed weights pass to the device: while one arena is being copied, the next is filled.
import { assert } from "../../core/errors.ts";
import { alignUp } from "../../core/units.ts";
import type { NativeKernels, WeightArena } from "../native-kernels.ts";
import { CudaError } from "./cuda-error.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { Handle } from "./driver.ts";
import type { DeviceStream } from "./stream.ts";

/** Matrices in an arena start on these (native/addon/matrix-glue.cpp). */
const PLACE_ALIGNMENT_BYTES = 64;

/** Room for one piece of a matrix. */
export interface StagingPlace {
  arena: WeightArena;
  offsetBytes: number;
}

interface Side {
  arena: WeightArena;
  /** Recorded behind the last copy out of the arena. */
  copied: Handle;
  pinned: boolean;
  usedBytes: number;
}

/** A few arenas in turn. */
export class UploadStaging {
  readonly #stream: DeviceStream;
  readonly #sides: Side[] = [];
  #current = 0;

  /** Takes `count` arenas of `bytes` each. Throws `memory` or `cuda`; nothing stays taken then. */
  constructor(kernels: NativeKernels, stream: DeviceStream, bytes: number, count: number) {
    this.#stream = stream;
    try {
      for (let i = 0; i < count; i++) this.#sides.push(openSide(kernels, stream, bytes));
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Room for `bytes`, to be filled and given to `upload`. Waits while everything is still being copied. */
  place(bytes: number): StagingPlace {
    let side = this.#sides[this.#current];
    if (side.usedBytes + bytes > side.arena.bytes) {
      this.#stream.driver.recordEvent(side.copied, this.#stream.handle);
      this.#current = (this.#current + 1) % this.#sides.length;
      side = this.#sides[this.#current];
      if (side.usedBytes > 0) this.#stream.driver.synchronizeEvent(side.copied);
      side.usedBytes = 0;
      assert(bytes <= side.arena.bytes, `a piece of ${bytes} bytes in ${side.arena.bytes} bytes of staging`);
    }
    const offsetBytes = side.usedBytes;
    side.usedBytes = alignUp(offsetBytes + bytes, PLACE_ALIGNMENT_BYTES);
    return { arena: side.arena, offsetBytes };
  }

  /** Queues the copy of a filled place. */
  upload({ arena, offsetBytes }: StagingPlace, target: DeviceBuffer): void {
    this.#stream.driver.copyToDevice(
      target.address,
      arena.address + offsetBytes,
      target.bytes,
      this.#stream.handle,
    );
  }

  /** Frees the arenas; copies must have finished (`stream.synchronize`) unless they failed. */
  close(): void {
    const { driver } = this.#stream;
    for (const { arena, copied, pinned } of this.#sides.splice(0)) {
      try {
        if (pinned) driver.unpin(arena.address);
        driver.destroyEvent(copied);
      } catch (error) {
        // After a lost device everything fails; the first error is already on its way.
        if (!(error instanceof CudaError)) throw error;
      } finally {
        arena.close();
      }
    }
  }
}

function openSide(kernels: NativeKernels, stream: DeviceStream, bytes: number): Side {
  const arena = new kernels.WeightArena(bytes);
  let copied: Handle | undefined;
  try {
    copied = stream.driver.createEvent();
    return { arena, copied, pinned: tryPin(stream, arena), usedBytes: 0 };
  } catch (error) {
    if (copied !== undefined) stream.driver.destroyEvent(copied);
    arena.close();
    throw error;
  }
}

/** Unpinned memory is copied all the same, only slower: where the system allows no pinning, loading still works. */
function tryPin({ driver }: DeviceStream, arena: WeightArena): boolean {
  try {
    driver.pin(arena.address, arena.bytes);
    return true;
  } catch (error) {
    if (error instanceof CudaError && error.fatal) throw error;
    return false;
  }
}
