// Host memory through which packed weights pass to the device: a slot for each read under way, and one being copied.
import { ggmlType } from "../../blocks/ggml-types.ts";
import { alignUp } from "../../core/units.ts";
import type { GgufFile } from "../../gguf/gguf-file.ts";
import { UPLOAD_SLOTS, uploadBytes, uploadSlotBytes } from "../../plan/staging-size.ts";
import { PANEL_ROWS, type WeightPlan } from "../../plan/weight-layout.ts";
import type { PackTarget } from "../../residency/fill-matrices.ts";
import { allocateArena } from "../../residency/load-weights.ts";
import { type Piece, packedOffsets, type Read } from "../../residency/read-order.ts";
import type { NativeKernels, WeightArena, WeightMatrix } from "../native-kernels.ts";
import { CudaError } from "./cuda-error.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { Handle } from "./driver.ts";
import type { DeviceStream } from "./stream.ts";

/** A copy: bytes of the host arena that lie on the device as they lie here. */
interface Copy {
  sourceBegin: number;
  targetBegin: number;
  bytes: number;
}

/** One arena, pinned where the system allows it. The copies of a read end while the next read is waited for. */
export class UploadStaging {
  readonly #kernels: NativeKernels;
  readonly #stream: DeviceStream;
  readonly #slotBytes: number;
  readonly #arena: WeightArena;
  /** Reads of equal shape fill a slot alike, and most reads are: few matrices for many pieces. */
  readonly #matrices = new Map<string, WeightMatrix>();
  /** Recorded behind the copies of a read: of the last and of the one before. */
  readonly #copied: Handle[] = [];
  #pinned = false;
  #copying = false;

  /** Throws `memory` or `cuda`; nothing stays taken then. */
  constructor(kernels: NativeKernels, stream: DeviceStream, file: GgufFile, plan: WeightPlan) {
    this.#kernels = kernels;
    this.#stream = stream;
    this.#slotBytes = uploadSlotBytes(plan);
    this.#arena = allocateArena(kernels, file, uploadBytes(plan), "upload buffers");
    try {
      this.#pinned = tryPin(stream, this.#arena);
      for (let i = 0; i < 2; i++) this.#copied.push(stream.driver.createEvent());
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Where the pieces of read number `index` are packed: in its slot, which the read UPLOAD_SLOTS later has too. */
  targetsOf(read: Read, index: number): PackTarget[] {
    const offsets = packedOffsets(read);
    return read.pieces.map((piece, i) => {
      return { matrix: this.#matrix(this.#slotBegin(index) + offsets[i], piece), slice: 0, rowBegin: 0 };
    });
  }

  /** Queues the copies of a packed read to its place in the weights at `target`, and waits for those of the read before. */
  upload(read: Read, index: number, target: DeviceBuffer): void {
    const { driver, handle } = this.#stream;
    this.#copying = true;
    for (const { sourceBegin, targetBegin, bytes } of copiesOf(read, this.#slotBegin(index))) {
      const { address } = target.slice(targetBegin, bytes);
      driver.copyToDevice(address, this.#arena.address + sourceBegin, bytes, handle);
    }
    driver.recordEvent(this.#copied[index % 2], handle);
    if (index > 0) driver.synchronizeEvent(this.#copied[(index - 1) % 2]);
  }

  /** Waits for all copies. */
  finish(): void {
    this.#stream.synchronize();
    this.#copying = false;
  }

  /** Frees the arena, into which nothing may be packed any more. */
  close(): void {
    const { driver } = this.#stream;
    if (this.#copying) unlessLost(() => this.finish());
    if (this.#pinned) unlessLost(() => driver.unpin(this.#arena.address));
    for (const event of this.#copied) unlessLost(() => driver.destroyEvent(event));
    this.#arena.close();
  }

  #slotBegin(index: number): number {
    return (index % UPLOAD_SLOTS) * this.#slotBytes;
  }

  #matrix(offsetBytes: number, { placed: { tensor, cols }, rowCount }: Piece): WeightMatrix {
    const { id } = ggmlType(tensor.type);
    const key = `${offsetBytes} ${id} ${rowCount} ${cols}`;
    const known = this.#matrices.get(key);
    if (known !== undefined) return known;
    const matrix = new this.#kernels.WeightMatrix(this.#arena, offsetBytes, id, 1, rowCount, cols);
    this.#matrices.set(key, matrix);
    return matrix;
  }
}

/** The copies of a read whose packed pieces begin at `slotBegin`: one where they lie as on the device. */
function copiesOf(read: Read, slotBegin: number): Copy[] {
  const copies: Copy[] = [];
  const offsets = packedOffsets(read);
  for (const [i, { placed, slice, rowBegin, packedBytes }] of read.pieces.entries()) {
    const { offsetBytes, bytes, slices, rows } = placed;
    const bytesPerRow = bytes / slices / alignUp(rows, PANEL_ROWS);
    const sourceBegin = slotBegin + offsets[i];
    const targetBegin = offsetBytes + (slice * bytes) / slices + rowBegin * bytesPerRow;
    const last = copies.at(-1);
    if (last !== undefined && targetBegin - last.targetBegin === sourceBegin - last.sourceBegin) {
      last.bytes = sourceBegin + packedBytes - last.sourceBegin;
    } else {
      copies.push({ sourceBegin, targetBegin, bytes: packedBytes });
    }
  }
  return copies;
}

/** Does without what fails after a lost device, where everything fails: the first error is already on its way. */
function unlessLost(run: () => void): void {
  try {
    run();
  } catch (error) {
    if (!(error instanceof CudaError)) throw error;
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
