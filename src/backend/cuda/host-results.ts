// What comes back from the device after a pass, in memory that it can write by itself: the error flag with the candidates of
// up to HEAD_ROWS rows, and whole rows of logits where they are wanted.
import { CudaError } from "./cuda-error.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import { HEAD_ROWS } from "./scratch.ts";
import type { DeviceStream } from "./stream.ts";
import { type DeviceTop, RESULT_HEADER_BYTES, resultBytes, takeTopLogits } from "./top-logits-steps.ts";

/** See the file's head. The memory is V8's: a view of it outlives the backend. */
export class HostResults {
  readonly #stream: DeviceStream;
  readonly #vocabSize: number;
  readonly #results = new Uint8Array(resultBytes(HEAD_ROWS));
  readonly #pinned = new Set<ArrayBufferView>();
  #rows = new Float32Array(0);

  /** Throws `cuda` on a lost device; nothing stays pinned then. */
  constructor(stream: DeviceStream, vocabSize: number) {
    this.#stream = stream;
    this.#vocabSize = vocabSize;
    this.#pin(this.#results);
  }

  /** Bytes that are pinned, where the system allows it. */
  get bytes(): number {
    return this.#results.byteLength + this.#rows.byteLength;
  }

  /** Queues the copy of the flag and the first `rows` candidates. */
  enqueueResults(source: DeviceBuffer, rows: number): void {
    this.#stream.enqueueRead(source, this.#results.subarray(0, resultBytes(rows)));
  }

  /** The flag of the last `enqueueResults`, once the stream is synchronized. */
  get flag(): number {
    return new Int32Array(this.#results.buffer, 0, 1)[0];
  }

  /** Candidates number `index` of the last `enqueueResults`, likewise; a copy. */
  top(index: number): DeviceTop {
    return takeTopLogits(this.#results.subarray(RESULT_HEADER_BYTES), index);
  }

  /**
   * Queues the copy of one of `count` rows of logits [count, vocab]. The view of it [vocab] is valid once the stream is
   * synchronized, until the next pass.
   */
  enqueueRow(logits: DeviceBuffer, index: number, count: number): Float32Array {
    const { length } = this.#rows;
    const vocab = this.#vocabSize;
    // As many as sequences want rows at once: the memory plan has one for each slot.
    if (length < count * vocab) {
      this.#unpin(this.#rows);
      this.#rows = new Float32Array(count * vocab);
      this.#pin(this.#rows);
    }
    const row = this.#rows.subarray(index * vocab, (index + 1) * vocab);
    this.#stream.enqueueRead(logits.slice(4 * index * vocab), row);
    return row;
  }

  /** Unpins; copies must have finished. */
  close(): void {
    for (const memory of [...this.#pinned]) this.#unpin(memory);
  }

  /** Unpinned memory is copied to all the same, only slower. */
  #pin(memory: ArrayBufferView): void {
    try {
      this.#stream.driver.pin(memory, memory.byteLength);
      this.#pinned.add(memory);
    } catch (error) {
      if (error instanceof CudaError && error.fatal) throw error;
    }
  }

  #unpin(memory: ArrayBufferView): void {
    if (this.#pinned.delete(memory)) this.#stream.driver.unpin(memory);
  }
}
