// Saved states as the scheduler uses them: an index in this thread, the files in another.
import { Worker } from "node:worker_threads";
import type { KvSnapshot } from "../backend/kv-snapshot.ts";
import type { StoreChange } from "./kv-disk-store.ts";
import type { DiskEntry, KvDisk, SaveReason } from "./kv-disk-types.ts";
import type { DiskThreadOptions, FromDisk, ToDisk } from "./kv-disk-worker.ts";
import { longestPrefixOf } from "./token-prefix.ts";

/** Bytes of saved states when nothing else is asked for. */
export const DEFAULT_KV_DISK_BYTES = 8 * 1024 ** 3;
/** Each state on its way is a copy in memory: routine ones are left out beyond this many. */
const MAX_PENDING_SAVES = 2;
const WORKER_URL = new URL(
  import.meta.url.endsWith(".ts") ? "./kv-disk-worker.ts" : "./kv-disk-worker.js",
  import.meta.url,
);

/** See `DiskThreadOptions`. */
export interface KvDiskOptions extends DiskThreadOptions {
  log(line: string): void;
}

/** Starts the thread and reads the folder's index. Never throws: a folder that cannot be used is logged. */
export async function openKvDisk(options: KvDiskOptions): Promise<KvDisk> {
  const disk = new ThreadedKvDisk(options);
  await disk.opened;
  return disk;
}

class ThreadedKvDisk implements KvDisk {
  readonly limitBytes: number;
  readonly opened: Promise<void>;
  readonly #worker: Worker;
  readonly #log: (line: string) => void;
  readonly #entries = new Map<string, DiskEntry>();
  readonly #loads = new Map<number, (snapshot: KvSnapshot | undefined) => void>();
  readonly #exited: Promise<void>;
  #onOpened = () => {};
  #pendingSaves = 0;
  #nextId = 1;
  #dead = false;
  bytes = 0;
  savedCount = 0;
  evictedCount = 0;
  rejectedCount = 0;

  constructor({ folder, fingerprint, limitBytes, log }: KvDiskOptions) {
    this.limitBytes = limitBytes;
    this.#log = log;
    this.opened = new Promise((resolve) => {
      this.#onOpened = resolve;
    });
    const workerData: DiskThreadOptions = { folder, fingerprint, limitBytes };
    this.#worker = new Worker(WORKER_URL, { workerData });
    this.#worker.on("message", (message: FromDisk) => this.#receive(message));
    this.#worker.on("error", (error) =>
      this.#end(`the thread of the KV cache failed: ${(error as Error).message}`),
    );
    this.#exited = new Promise((resolve) => {
      this.#worker.once("exit", () => {
        this.#end();
        resolve();
      });
    });
  }

  get count(): number {
    return this.#entries.size;
  }

  longestPrefix(tokens: Int32Array, maxTokens?: number): DiskEntry | undefined {
    return longestPrefixOf(this.#entries.values(), tokens, maxTokens);
  }

  load(entry: DiskEntry): Promise<KvSnapshot | undefined> {
    if (this.#dead) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      const id = this.#nextId++;
      this.#loads.set(id, resolve);
      this.#send({ kind: "load", id, key: entry.key });
    });
  }

  save(tokens: Int32Array, snapshot: KvSnapshot, reason: SaveReason, pinned?: DiskEntry): void {
    if (this.#dead || (reason === "continued" && this.#pendingSaves >= MAX_PENDING_SAVES)) return;
    this.#pendingSaves++;
    // Cloned by the message, not handed over: the checkpoint pool may hold the same sections.
    this.#send({ kind: "save", tokens, snapshot, reason, pinnedKey: pinned?.key });
  }

  drop(entry: DiskEntry, why: string): void {
    this.#forget(entry.key);
    if (!this.#dead) this.#send({ kind: "reject", key: entry.key, why });
  }

  async close(): Promise<void> {
    if (!this.#dead) this.#send({ kind: "close" });
    await this.#exited;
  }

  #send(message: ToDisk): void {
    this.#worker.postMessage(message);
  }

  #receive(message: FromDisk): void {
    if (message.kind === "opened") {
      this.savedCount = 0; // what was found there is not of this run
      this.#onOpened();
    } else if (message.kind === "change") this.#apply(message.change);
    else if (message.kind === "log") this.#log(message.line);
    else if (message.kind === "saved") this.#pendingSaves--;
    else {
      this.#loads.get(message.id)?.(message.snapshot);
      this.#loads.delete(message.id);
    }
  }

  #apply(change: StoreChange): void {
    if (change.kind === "added") {
      this.#entries.set(change.entry.key, change.entry);
      this.bytes += change.entry.bytes;
      this.savedCount++;
      return;
    }
    if (change.why === "evicted") this.evictedCount++;
    else this.rejectedCount++;
    this.#forget(change.key);
  }

  #forget(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    this.bytes -= entry.bytes;
  }

  #end(why?: string): void {
    if (why !== undefined) this.#log(`${why}; serving without it`);
    this.#dead = true;
    this.#entries.clear();
    for (const resolve of this.#loads.values()) resolve(undefined);
    this.#loads.clear();
    this.#onOpened();
  }
}
