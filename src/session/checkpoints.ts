// Saved states of a session's timeline, found again by token prefix. KV states cannot be cut, only restored, so
// going back means restoring the longest saved prefix and evaluating the rest. Held in memory here; a store on
// disk only has to implement `CheckpointStore`.
import type { KvSnapshot } from "../backend/kv-snapshot.ts";

/** A session at one moment: what was evaluated, the KV state and the logits after the last token. */
export interface SessionSnapshot {
  tokens: Int32Array;
  kv: KvSnapshot;
  /** [vocabSize]; empty when no token was evaluated. */
  logits: Float32Array;
}

/** Where sessions look for a saved prefix. */
export interface CheckpointStore {
  save(snapshot: SessionSnapshot): void;
  /** The snapshot with the most tokens whose tokens are a prefix of `tokens` (or equal to it). */
  longestPrefix(tokens: ArrayLike<number>): SessionSnapshot | undefined;
}

/** Length of the common prefix of two token lists. */
export function commonPrefixLength(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const end = Math.min(a.length, b.length);
  let length = 0;
  while (length < end && a[length] === b[length]) length++;
  return length;
}

/** Keeps the last few snapshots in memory and drops the oldest. */
export class MemoryCheckpoints implements CheckpointStore {
  readonly #limitCount: number;
  #snapshots: SessionSnapshot[] = [];

  /** At most `limitCount` snapshots; each is as large as the KV state's filled part. */
  constructor(limitCount: number) {
    this.#limitCount = limitCount;
  }

  get count(): number {
    return this.#snapshots.length;
  }

  save(snapshot: SessionSnapshot): void {
    const same = (other: SessionSnapshot) =>
      other.tokens.length === snapshot.tokens.length &&
      commonPrefixLength(other.tokens, snapshot.tokens) === snapshot.tokens.length;
    this.#snapshots = this.#snapshots.filter((other) => !same(other));
    this.#snapshots.push(snapshot);
    if (this.#snapshots.length > this.#limitCount) this.#snapshots.shift();
  }

  longestPrefix(tokens: ArrayLike<number>): SessionSnapshot | undefined {
    let best: SessionSnapshot | undefined;
    for (const snapshot of this.#snapshots) {
      const length = snapshot.tokens.length;
      if (length > tokens.length || length <= (best?.tokens.length ?? 0)) continue;
      if (commonPrefixLength(snapshot.tokens, tokens) === length) best = snapshot;
    }
    return best;
  }
}
