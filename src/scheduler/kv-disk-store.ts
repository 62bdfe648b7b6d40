// The files of saved states of one model: `<folder>/<fingerprint>/<key>.ds4kv`. Synchronous; runs in a thread of its
// own. A file is written beside its name, flushed and renamed, so that a crash leaves it whole or not at all.
import * as fs from "node:fs";
import { join } from "node:path";
import type { KvSnapshot } from "../backend/kv-snapshot.ts";
import { victimsFor } from "./kv-disk-eviction.ts";
import {
  decodeFront,
  decodeState,
  encodeState,
  frontBytes,
  HEAD_BYTES,
  HITS_OFFSET,
  stateKey,
} from "./kv-disk-format.ts";
import type { DiskEntry, SaveReason } from "./kv-disk-types.ts";

const SUFFIX = ".ds4kv";
const TEMPORARY_SUFFIX = ".ds4kv-part";
/** Bytes of one read or write call. */
const TRANSFER_BYTES = 64 * 1024 * 1024;

/** What changed, for the copy of the index that the scheduler looks into. */
export type StoreChange =
  | { kind: "added"; entry: DiskEntry }
  | { kind: "removed"; key: string; why: "evicted" | "rejected" };

/** Where a store lies and whom it tells. */
export interface StoreOptions {
  folder: string;
  /** Of the model; names its own folder. */
  fingerprint: string;
  limitBytes: number;
  onChange(change: StoreChange): void;
  log(line: string): void;
  /** Milliseconds since 1970. */
  now?: () => number;
}

/** See the file's head. No method throws on what the disk does. */
export class KvDiskStore {
  readonly #options: StoreOptions;
  readonly #folder: string;
  readonly #entries = new Map<string, DiskEntry>();
  readonly #now: () => number;
  #warned = false;

  /** Opens the folder and reads the headers of its files: those that are damaged are logged and removed. */
  constructor(options: StoreOptions) {
    this.#options = options;
    this.#folder = join(options.folder, options.fingerprint.slice(0, 16));
    this.#now = options.now ?? Date.now;
    this.#attempt("open", () => {
      fs.mkdirSync(this.#folder, { recursive: true });
      for (const name of fs.readdirSync(this.#folder).sort()) this.#scan(name);
    });
  }

  get entries(): ReadonlyMap<string, DiskEntry> {
    return this.#entries;
  }

  get bytes(): number {
    return [...this.#entries.values()].reduce((sum, entry) => sum + entry.bytes, 0);
  }

  /** Saves a state unless it is there already or is worth less than what it would replace. */
  save(tokens: Int32Array, snapshot: KvSnapshot, reason: SaveReason, pinnedKey?: string): boolean {
    const { fingerprint, limitBytes } = this.#options;
    const key = stateKey(fingerprint, tokens);
    if (this.#entries.has(key)) return false;
    const pieces = encodeState(fingerprint, reason, tokens, snapshot);
    const bytes = pieces.reduce((sum, piece) => sum + piece.length, 0);
    const entry: DiskEntry = { key, tokens, bytes, reason, hits: 0, lastUsedMs: this.#now() };
    const pinned = pinnedKey === undefined ? undefined : this.#entries.get(pinnedKey);
    const victims = victimsFor([...this.#entries.values()], entry, limitBytes, this.#now(), pinned);
    if (victims === undefined) return false;
    const written = this.#attempt("write to", () => this.#write(key, pieces));
    if (!written) return false;
    this.#entries.set(key, entry);
    this.#options.onChange({ kind: "added", entry });
    for (const victim of victims) this.#remove(victim.key, "evicted");
    return true;
  }

  /** Reads a state and counts the use. Undefined, and the file removed, when it is damaged. */
  load(key: string): KvSnapshot | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    try {
      const { snapshot, header } = decodeState(readWhole(this.#pathOf(key)), this.#options.fingerprint);
      if (stateKey(header.fingerprint, header.tokens) !== key)
        throw new Error("its tokens are not those of its name");
      this.#countHit(entry);
      return snapshot;
    } catch (error) {
      this.reject(key, (error as Error).message);
      return undefined;
    }
  }

  /** Removes a state that proved wrong. */
  reject(key: string, why: string): void {
    if (!this.#entries.has(key)) return;
    this.#options.log(`saved KV state ${key} is removed: ${why}`);
    this.#remove(key, "rejected");
  }

  #scan(name: string): void {
    const path = join(this.#folder, name);
    // A crash left it.
    if (name.endsWith(TEMPORARY_SUFFIX)) this.#attempt("remove from", () => fs.rmSync(path, { force: true }));
    if (!name.endsWith(SUFFIX)) return;
    const key = name.slice(0, -SUFFIX.length);
    try {
      const { fingerprint } = this.#options;
      const stat = fs.statSync(path);
      const header = decodeFront(readFront(path, stat.size), stat.size, fingerprint);
      if (stateKey(fingerprint, header.tokens) !== key)
        throw new Error("its tokens are not those of its name");
      const { tokens, reason, hits, fileBytes: bytes } = header;
      const entry: DiskEntry = { key, tokens, bytes, reason, hits, lastUsedMs: stat.mtimeMs };
      this.#entries.set(key, entry);
      this.#options.onChange({ kind: "added", entry });
    } catch (error) {
      this.#options.log(`saved KV state ${key} is removed: ${(error as Error).message}`);
      this.#options.onChange({ kind: "removed", key, why: "rejected" });
      this.#attempt("remove from", () => fs.rmSync(path, { force: true, recursive: true }));
    }
  }

  #write(key: string, pieces: readonly Uint8Array[]): void {
    const temporary = join(this.#folder, `${key}-${process.pid}${TEMPORARY_SUFFIX}`);
    try {
      const file = fs.openSync(temporary, "w", 0o600); // prompts of people
      try {
        for (const piece of pieces) {
          for (let at = 0; at < piece.length; ) {
            at += fs.writeSync(file, piece, at, Math.min(TRANSFER_BYTES, piece.length - at));
          }
        }
        fs.fsyncSync(file);
      } finally {
        fs.closeSync(file);
      }
      fs.renameSync(temporary, this.#pathOf(key));
      syncFolder(this.#folder);
    } catch (error) {
      fs.rmSync(temporary, { force: true });
      throw error;
    }
  }

  #remove(key: string, why: "evicted" | "rejected"): void {
    this.#entries.delete(key);
    this.#options.onChange({ kind: "removed", key, why });
    this.#attempt("remove from", () => fs.rmSync(this.#pathOf(key), { force: true }));
  }

  #countHit(entry: DiskEntry): void {
    entry.hits++;
    entry.lastUsedMs = this.#now();
    this.#attempt("update", () => {
      const path = this.#pathOf(entry.key);
      const file = fs.openSync(path, "r+");
      const count = Buffer.alloc(4);
      count.writeUInt32LE(entry.hits);
      fs.writeSync(file, count, 0, 4, HITS_OFFSET);
      fs.closeSync(file);
      fs.utimesSync(path, new Date(), new Date(entry.lastUsedMs));
    });
  }

  #pathOf(key: string): string {
    return join(this.#folder, `${key}${SUFFIX}`);
  }

  /** A full or read-only disk costs reuse only, and is said once. */
  #attempt(what: string, action: () => void): boolean {
    try {
      action();
      return true;
    } catch (error) {
      if (!this.#warned) {
        const reason = (error as Error).message;
        this.#options.log(
          `cannot ${what} the KV cache folder ${this.#folder}: ${reason}; serving without it`,
        );
      }
      this.#warned = true;
      return false;
    }
  }
}

function readFront(path: string, fileBytes: number): Uint8Array {
  const file = fs.openSync(path, "r");
  try {
    const head = new Uint8Array(Math.min(HEAD_BYTES, fileBytes));
    fs.readSync(file, head, 0, head.length, 0);
    const front = new Uint8Array(frontBytes(head, fileBytes));
    fs.readSync(file, front, 0, front.length, 0);
    return front;
  } finally {
    fs.closeSync(file);
  }
}

// `readFileSync` refuses files of 2 GiB, which a long context reaches.
function readWhole(path: string): Uint8Array {
  const file = fs.openSync(path, "r");
  try {
    const bytes = new Uint8Array(fs.fstatSync(file).size);
    let at = 0;
    while (at < bytes.length) {
      const count = fs.readSync(file, bytes, at, Math.min(TRANSFER_BYTES, bytes.length - at), at);
      if (count === 0) break;
      at += count;
    }
    return bytes.subarray(0, at);
  } finally {
    fs.closeSync(file);
  }
}

// Makes the rename itself survive a power cut. Some file systems refuse; the file's bytes are safe without it.
function syncFolder(folder: string): void {
  try {
    const handle = fs.openSync(folder, "r");
    fs.fsyncSync(handle);
    fs.closeSync(handle);
  } catch {}
}
