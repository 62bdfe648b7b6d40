// One KV state and the timeline of tokens that it holds.
import type { Backend, KvState } from "../backend/backend.ts";
import type { KvSnapshot } from "../backend/kv-snapshot.ts";
import type { Job } from "./job.ts";

/** See the file's head. Busy while it has a job. */
export class Slot {
  readonly index: number;
  readonly kv: KvState;
  readonly #history: Int32Array;
  readonly #logits: Float32Array;
  /** Length that the logits belong to; -1 when there are none. */
  #logitsAt = -1;
  job: Job | undefined;
  /** The conversation of the last request. */
  cacheKey: string | undefined;
  lastUsedMs = Number.NEGATIVE_INFINITY;
  /** Longest beginning of the timeline that was given to the disk. */
  diskTokens = 0;

  /** Allocates the KV state. Throws `memory` when it does not fit. */
  constructor(index: number, backend: Backend, ctxTokens: number) {
    this.index = index;
    this.kv = backend.createKv(ctxTokens);
    this.#history = new Int32Array(ctxTokens);
    this.#logits = new Float32Array(backend.spec.vocabSize);
  }

  get lengthTokens(): number {
    return this.kv.lengthTokens;
  }

  /** The evaluated tokens: a view, valid until the slot changes. */
  get tokens(): Int32Array {
    return this.#history.subarray(0, this.lengthTokens);
  }

  /** Logits [vocabSize] after the last token; undefined after a restore, and when candidates of them were enough. */
  get logits(): Float32Array | undefined {
    return this.#logitsAt === this.lengthTokens ? this.#logits : undefined;
  }

  /** Records what a forward call appended, with the logits after it if they are to be kept. */
  appended(tokens: Int32Array, logits: Float32Array | undefined): void {
    this.#history.set(tokens, this.lengthTokens - tokens.length);
    if (logits === undefined) return;
    this.#logits.set(logits);
    this.#logitsAt = this.lengthTokens;
  }

  /** Replaces the timeline. Throws what the backend throws; the slot is then empty. */
  restore(tokens: Int32Array, snapshot: KvSnapshot): void {
    this.reset();
    try {
      this.kv.restore(snapshot);
      if (this.kv.lengthTokens !== tokens.length) throw new Error("its length is not that of its tokens");
    } catch (error) {
      this.reset();
      throw error;
    }
    this.#history.set(tokens);
  }

  /** Forgets everything; memory stays. */
  reset(): void {
    this.kv.reset();
    this.#logitsAt = -1;
    this.diskTokens = 0;
  }
}
