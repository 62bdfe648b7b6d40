// One mutable timeline of tokens over one KV state: prefill, decode, save, restore, and `sync`, which makes the
// timeline equal to a given prompt while reusing what it can. Knows nothing of text or sampling.
import type { Backend, KvState, LogitsWanted, TopLogits } from "../backend/backend.ts";
import { CancelledError, Ds4Error } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import { type CheckpointStore, commonPrefixLength, type SessionSnapshot } from "./checkpoints.ts";
import { ContextFullError } from "./session-errors.ts";

/** Tokens per prefill chunk when the caller does not say: large enough to fill the batched kernels. */
export const DEFAULT_CHUNK_TOKENS = 512;

/** Anything that can say "stop": an `AbortSignal`, or a flag shared between threads. */
export interface CancelSignal {
  readonly aborted: boolean;
}

/** How a prefill runs. */
export interface PrefillOptions {
  /** Tokens per forward call, at least 1; the result does not depend on it. Default 512. */
  chunkTokens?: number;
  /** Called after each chunk with the tokens done of those that had to be evaluated. */
  onProgress?: ProgressListener;
  /** Checked before each chunk. */
  signal?: CancelSignal;
}

/** What `sync` did. */
export interface SyncResult {
  /** Tokens that were already in the KV state or came from a checkpoint. */
  reusedTokens: number;
  evaluatedTokens: number;
}

/** See the file's head. Not safe to share: one caller at a time. */
export class Session {
  readonly #backend: Backend;
  readonly #kv: KvState;
  readonly #history: Int32Array;
  readonly #logits: Float32Array;
  /** Of the last token, when its row was not taken yet. */
  #top: TopLogits | undefined;
  readonly #checkpoints: CheckpointStore | undefined;
  #closed = false;

  /** Allocates the KV state for `ctxTokens`. Throws `memory` when it does not fit. */
  constructor(backend: Backend, ctxTokens: number, checkpoints?: CheckpointStore) {
    if (!Number.isInteger(ctxTokens) || ctxTokens < 1) {
      throw new Ds4Error("session", `context: expected a positive number of tokens, got ${ctxTokens}`);
    }
    this.#backend = backend;
    this.#kv = backend.createKv(ctxTokens);
    this.#history = new Int32Array(ctxTokens);
    this.#logits = new Float32Array(backend.spec.vocabSize);
    this.#checkpoints = checkpoints;
  }

  get capacityTokens(): number {
    return this.#kv.capacityTokens;
  }

  /** Tokens evaluated so far. */
  get lengthTokens(): number {
    return this.#kv.lengthTokens;
  }

  get remainingTokens(): number {
    return this.capacityTokens - this.lengthTokens;
  }

  get kvBytes(): number {
    return this.#kv.bytes;
  }

  get vocabSize(): number {
    return this.#backend.spec.vocabSize;
  }

  /** The evaluated tokens. A view: valid until the session changes, not to be written. */
  get tokens(): Int32Array {
    return this.#history.subarray(0, this.lengthTokens);
  }

  /**
   * Logits [vocabSize] after the last evaluated token. A view that the next evaluation overwrites. Throws
   * `session` when nothing was evaluated, and when only candidates were asked for and the backend has gone on since.
   */
  get logits(): Float32Array {
    if (this.lengthTokens === 0) throw new Ds4Error("session", "no logits yet: evaluate at least one token");
    if (this.#top !== undefined) this.#logits.set(this.#top.row());
    this.#top = undefined;
    return this.#logits;
  }

  /** What to sample the next token from: candidates where the last step asked for them, else the row as in `logits`. */
  get candidates(): Float32Array | TopLogits {
    return this.#top ?? this.logits;
  }

  /**
   * Appends tokens in chunks. Throws `context-full` or `session` (bad id) before anything is evaluated, and
   * `cancelled` between chunks: finished chunks then stay in the timeline.
   */
  prefill(tokens: ArrayLike<number>, options: PrefillOptions = {}): void {
    const { onProgress, signal } = options;
    const chunkTokens = this.#checkedChunk(options.chunkTokens);
    this.#checkTokens(tokens);
    if (tokens.length > this.remainingTokens) {
      throw new ContextFullError(this.lengthTokens, tokens.length, this.capacityTokens);
    }
    const all = tokens instanceof Int32Array ? tokens : Int32Array.from(tokens);
    for (let done = 0; done < all.length; ) {
      if (signal?.aborted) throw new CancelledError(`cancelled after ${done} of ${all.length} prompt tokens`);
      const chunk = all.subarray(done, Math.min(done + chunkTokens, all.length));
      this.#evaluate(chunk, "last");
      done += chunk.length;
      onProgress?.({ label: "prefill", done, total: all.length, unit: "tokens" });
    }
  }

  /** Appends one token. The new logits are in `candidates`, with "last" as a row. Throws `context-full`. */
  step(token: number, wanted: "last" | "top" = "last"): void {
    if (this.remainingTokens < 1) throw new ContextFullError(this.lengthTokens, 1, this.capacityTokens);
    this.#checkTokens([token]);
    this.#evaluate(Int32Array.of(token), wanted);
  }

  /**
   * Makes the timeline equal to `tokens`. Where they continue it, only the new ones are evaluated; otherwise
   * the longest checkpoint that fits is restored, or everything is evaluated again. Throws as `prefill` does;
   * a prompt longer than the context changes nothing.
   */
  sync(tokens: ArrayLike<number>, options: PrefillOptions = {}): SyncResult {
    this.#checkTokens(tokens);
    if (tokens.length > this.capacityTokens) {
      throw new ContextFullError(
        0,
        tokens.length,
        this.capacityTokens,
        "shorten the prompt or use a larger context",
      );
    }
    // Where nothing is to be evaluated the logits must be there; a state cannot be cut by the one token that has them.
    const isBare = this.#top !== undefined && tokens.length === this.lengthTokens;
    if (isBare || commonPrefixLength(this.tokens, tokens) < this.lengthTokens) {
      const saved = this.#checkpoints?.longestPrefix(tokens);
      if (saved === undefined) this.reset();
      else this.restore(saved);
    }
    const reusedTokens = this.lengthTokens;
    const rest = Int32Array.from(tokens).subarray(reusedTokens);
    if (rest.length > 0) this.prefill(rest, options);
    return { reusedTokens, evaluatedTokens: rest.length };
  }

  /** Goes back to the first `lengthTokens` tokens, from the nearest checkpoint at or before them. */
  rollback(lengthTokens: number, options: PrefillOptions = {}): SyncResult {
    if (!Number.isInteger(lengthTokens) || lengthTokens < 0 || lengthTokens > this.lengthTokens) {
      throw new Ds4Error("session", `rollback: expected 0..${this.lengthTokens} tokens, got ${lengthTokens}`);
    }
    return this.sync(this.#history.slice(0, lengthTokens), options);
  }

  /** Copies the timeline out. */
  snapshot(): SessionSnapshot {
    const logits = this.lengthTokens === 0 ? new Float32Array(0) : this.logits.slice();
    return { tokens: this.tokens.slice(), kv: this.#kv.snapshot(), logits };
  }

  /** Saves the timeline in the checkpoint store, if there is one. */
  checkpoint(): void {
    this.#checkpoints?.save(this.snapshot());
  }

  /** Replaces the timeline. Throws `session` when the snapshot is of another model or too long. */
  restore(snapshot: SessionSnapshot): void {
    const { tokens, logits, kv } = snapshot;
    const expectedLogits = tokens.length === 0 ? 0 : this.vocabSize;
    if (kv.lengthTokens !== tokens.length || logits.length !== expectedLogits) {
      throw new Ds4Error(
        "session",
        `snapshot: ${tokens.length} tokens, a KV state of ${kv.lengthTokens} and ${logits.length} logits ` +
          `(expected ${expectedLogits}) do not belong together`,
      );
    }
    if (tokens.length > this.capacityTokens) {
      throw new ContextFullError(0, tokens.length, this.capacityTokens);
    }
    this.#kv.restore(kv);
    this.#history.set(tokens);
    this.#logits.set(logits);
    this.#top = undefined;
  }

  /** Forgets all tokens; memory stays. */
  reset(): void {
    this.#top = undefined;
    this.#kv.reset();
  }

  /** Frees the KV state. Twice is harmless. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#kv.close();
  }

  // Logits are asked for at every chunk's end, not only the last: one row costs little beside a chunk, and a
  // cancelled prefill then leaves a timeline that can be continued from.
  #evaluate(tokens: Int32Array, wanted: LogitsWanted): void {
    const at = this.lengthTokens;
    const { logits, top } = this.#backend.forward([{ kv: this.#kv, tokens, logits: wanted }]);
    this.#history.set(tokens, at);
    [this.#top] = top;
    if (this.#top === undefined) this.#logits.set(logits[0]);
  }

  #checkedChunk(chunkTokens = DEFAULT_CHUNK_TOKENS): number {
    if (!Number.isInteger(chunkTokens) || chunkTokens < 1) {
      throw new Ds4Error(
        "session",
        `prefill chunk: expected a positive number of tokens, got ${chunkTokens}`,
      );
    }
    return Math.min(chunkTokens, this.#backend.maxBatchTokens);
  }

  #checkTokens(tokens: ArrayLike<number>): void {
    if (this.#closed) throw new Ds4Error("session", "the session is closed");
    for (let i = 0; i < tokens.length; i++) {
      const id = tokens[i];
      if (Number.isInteger(id) && id >= 0 && id < this.vocabSize) continue;
      throw new Ds4Error("session", `token ${i}: expected an id in 0..${this.vocabSize - 1}, got ${id}`);
    }
  }
}
