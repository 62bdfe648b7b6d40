// Makes a slot hold as much of a prompt as is known anywhere: in a slot, as a checkpoint in memory, on disk. And keeps
// what will be wanted again: checkpoints while prompts are read, and timelines whose slot is taken.
import type { KvSnapshot } from "../backend/kv-snapshot.ts";
import type { Checkpoint, CheckpointPool } from "./checkpoint-pool.ts";
import type { Job } from "./job.ts";
import type { DiskEntry, KvDisk, SaveReason } from "./kv-disk-types.ts";
import type { Slot } from "./slot.ts";
import { cheapestSlot, continuedSlot, RESTORE_SHARE } from "./slot-choice.ts";

/**
 * The last checkpoint of a prompt lies this far before its end. A retry then has logits to compute, and a next turn
 * whose history closes the opening of the answer otherwise (`<think>` or not) still begins with it.
 */
export const TAIL_TOKENS = 4;
/** Fewer lost tokens than this are not worth a checkpoint. */
const MIN_LOST_TOKENS = 32;

/** What reuse works with. */
export interface ReuseOptions {
  slots: readonly Slot[];
  pool: CheckpointPool;
  disk: KvDisk | undefined;
  /** Distance of checkpoints within a prompt. */
  checkpointTokens: number;
  /** Saved states shorter than this, or that add less than this, are not worth a file. */
  diskMinTokens: number;
  now(): number;
  /** A job's saved state arrived, or will not. */
  onLoaded(): void;
  log(line: string): void;
}

/** See the file's head. */
export class PrefixReuse {
  readonly #options: ReuseOptions;

  constructor(options: ReuseOptions) {
    this.#options = options;
  }

  /**
   * Gives the job a slot that holds a beginning of its prompt, which is then its `reusedTokens`. The job is left in
   * state `prefill`, or `loading` while a file is read. False when every slot is busy.
   */
  place(job: Job): boolean {
    const { slots, pool, disk, diskMinTokens } = this.#options;
    const prompt = job.promptTokens;
    const live = continuedSlot(slots, prompt);
    const checkpoint = pool.longestPrefix(prompt, prompt.length - 1);
    const known = Math.max(live?.lengthTokens ?? 0, checkpoint?.tokens.length ?? 0);
    const saved = disk?.longestPrefix(prompt, prompt.length - 1);
    const loads = saved !== undefined && saved.tokens.length >= known + diskMinTokens;
    if (!loads && live !== undefined && live.lengthTokens === known) {
      this.#take(job, live);
      this.#reused(job, "slot", live.lengthTokens);
      return true;
    }
    const slot = cheapestSlot(slots, pool, job.request.cacheKey, this.#options.now());
    if (slot === undefined) return false;
    this.#guard(() => this.#saveBeforeLoss(slot, checkpoint, saved));
    this.#take(job, slot);
    if (loads) this.#load(job, slot, saved);
    else this.#restoreOrStartCold(job, slot);
    return true;
  }

  /** Empties the job's slot after its restored state proved wrong, to read the prompt from the start. */
  startCold(job: Job): void {
    job.dropRestored?.();
    job.dropRestored = undefined;
    job.slot!.reset();
    this.#reused(job, "none", 0);
  }

  /** Prompt tokens that the next chunk may hold before a checkpoint is due. */
  tokensToCheckpoint(job: Job): number {
    const length = job.slot!.lengthTokens;
    const end = job.promptTokens.length;
    if (!this.#keepsCheckpoints) return end - length;
    const { checkpointTokens } = this.#options;
    const next = (Math.floor(length / checkpointTokens) + 1) * checkpointTokens;
    const tail = end - TAIL_TOKENS;
    return Math.min(next, length < tail ? tail : end, end) - length;
  }

  /** Takes the checkpoint that is due at the slot's length, if any. Trouble costs reuse only. */
  afterChunk(job: Job): void {
    if (this.#keepsCheckpoints) this.#guard(() => this.#checkpoint(job));
  }

  #checkpoint(job: Job): void {
    const { pool, disk, checkpointTokens, diskMinTokens } = this.#options;
    const slot = job.slot!;
    const length = slot.lengthTokens;
    const isTail = length === job.promptTokens.length - TAIL_TOKENS;
    if (!isTail && length % checkpointTokens !== 0) return;
    let snapshot: KvSnapshot | undefined;
    if (pool.limitBytes > 0 && !pool.has(slot.tokens)) {
      snapshot = slot.kv.snapshot();
      pool.save(slot.tokens, snapshot);
    }
    if (!isTail || disk === undefined || length - slot.diskTokens < diskMinTokens) return;
    const isCold = job.reusedTokens === 0;
    if (!isCold && length - slot.diskTokens < 2 * checkpointTokens) return;
    this.#saveToDisk(slot, snapshot ?? slot.kv.snapshot(), isCold ? "cold" : "continued");
  }

  /** Saves what the disk does not hold yet. */
  saveAll(): void {
    const { slots, disk, diskMinTokens } = this.#options;
    if (disk === undefined) return;
    for (const slot of slots) {
      if (slot.lengthTokens - slot.diskTokens < diskMinTokens) continue;
      this.#guard(() => this.#saveToDisk(slot, slot.kv.snapshot(), "shutdown"));
    }
  }

  get #keepsCheckpoints(): boolean {
    return this.#options.pool.limitBytes > 0 || this.#options.disk !== undefined;
  }

  #take(job: Job, slot: Slot): void {
    const nowMs = this.#options.now();
    slot.job = job;
    slot.cacheKey = job.request.cacheKey;
    slot.lastUsedMs = nowMs;
    job.admitted(slot, nowMs);
    job.state = "prefill";
  }

  #reused(job: Job, from: Job["reusedFrom"], tokens: number): void {
    job.reusedFrom = tokens === 0 ? "none" : from;
    job.reusedTokens = tokens;
  }

  #restoreOrStartCold(job: Job, slot: Slot): void {
    const { pool, disk } = this.#options;
    const prompt = job.promptTokens;
    for (;;) {
      const checkpoint = pool.longestPrefix(prompt, prompt.length - 1);
      if (checkpoint === undefined) break;
      if (!this.#tryRestore(slot, checkpoint.tokens, () => pool.restore(checkpoint))) {
        pool.drop(checkpoint);
        continue;
      }
      slot.diskTokens = disk?.longestPrefix(slot.tokens)?.tokens.length ?? 0;
      job.dropRestored = () => pool.drop(checkpoint);
      this.#reused(job, "checkpoint", slot.lengthTokens);
      return;
    }
    slot.reset();
    this.#reused(job, "none", 0);
  }

  #load(job: Job, slot: Slot, entry: DiskEntry): void {
    const disk = this.#options.disk!;
    slot.reset();
    job.state = "loading";
    const arrived = (snapshot: KvSnapshot | undefined) => {
      // The request may have been cancelled, and the slot be another's, while the file was read.
      if (slot.job !== job || job.state !== "loading") return;
      job.state = "prefill";
      if (snapshot !== undefined && this.#tryRestore(slot, entry.tokens, () => snapshot)) {
        slot.diskTokens = entry.tokens.length;
        job.dropRestored = () => disk.drop(entry, "the backend failed right after it was restored");
        this.#reused(job, "disk", entry.tokens.length);
      } else {
        if (snapshot !== undefined) disk.drop(entry, "the backend refused it");
        this.#restoreOrStartCold(job, slot);
      }
      this.#options.onLoaded();
    };
    disk.load(entry).then(arrived, () => arrived(undefined));
  }

  #tryRestore(slot: Slot, tokens: Int32Array, snapshot: () => KvSnapshot): boolean {
    try {
      slot.restore(tokens, snapshot());
      return true;
    } catch (error) {
      this.#options.log(
        `a saved state of ${tokens.length} tokens cannot be restored: ${(error as Error).message}`,
      );
      return false;
    }
  }

  #saveBeforeLoss(slot: Slot, pinned: Checkpoint | undefined, pinnedFile: DiskEntry | undefined): void {
    const { pool, disk, diskMinTokens } = this.#options;
    const length = slot.lengthTokens;
    const covered = pool.longestPrefix(slot.tokens)?.tokens.length ?? 0;
    const forPool =
      pool.limitBytes > 0 && length - covered >= Math.max(MIN_LOST_TOKENS, RESTORE_SHARE * length);
    const forDisk = disk !== undefined && length - slot.diskTokens >= diskMinTokens;
    if (!forPool && !forDisk) return;
    const snapshot = slot.kv.snapshot();
    if (forPool) pool.save(slot.tokens, snapshot, pinned);
    if (forDisk) this.#saveToDisk(slot, snapshot, "evicted", pinnedFile);
  }

  // Copying a state may fail for want of memory; the request must not.
  #guard(save: () => void): void {
    try {
      save();
    } catch (error) {
      this.#options.log(`a KV state was not kept: ${(error as Error).message}`);
    }
  }

  #saveToDisk(slot: Slot, snapshot: KvSnapshot, reason: SaveReason, pinned?: DiskEntry): void {
    this.#options.disk?.save(slot.tokens.slice(), snapshot, reason, pinned);
    slot.diskTokens = slot.lengthTokens;
  }
}
