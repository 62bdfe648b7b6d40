// What the scheduler knows of saved states on disk; how and where they are written is `kv-disk.ts`'s business.
import type { KvSnapshot } from "../backend/kv-snapshot.ts";

/**
 * Why a state was saved: `cold`, a long prompt read from nothing; `continued`, routinely while a conversation grows;
 * `evicted`, its slot was needed; `shutdown`.
 */
export type SaveReason = "cold" | "continued" | "evicted" | "shutdown";

/** One saved state. */
export interface DiskEntry {
  /** Of model and tokens; the file's name. */
  key: string;
  tokens: Int32Array;
  bytes: number;
  reason: SaveReason;
  hits: number;
  /** Milliseconds since 1970. */
  lastUsedMs: number;
}

/** Saved states. No method throws: trouble is logged once and costs reuse only. */
export interface KvDisk {
  readonly bytes: number;
  readonly limitBytes: number;
  readonly count: number;
  readonly savedCount: number;
  readonly evictedCount: number;
  readonly rejectedCount: number;
  /** The longest saved state that `tokens` begins with, of at most `maxTokens` tokens. */
  longestPrefix(tokens: Int32Array, maxTokens?: number): DiskEntry | undefined;
  /** Reads and checks a state; undefined when it is damaged, which removes it. */
  load(entry: DiskEntry): Promise<KvSnapshot | undefined>;
  /** Saves in the background. What `pinned` names is not evicted for it. */
  save(tokens: Int32Array, snapshot: KvSnapshot, reason: SaveReason, pinned?: DiskEntry): void;
  /** Removes a state that proved wrong. */
  drop(entry: DiskEntry, why: string): void;
  /** Finishes what is being written. */
  close(): Promise<void>;
}
