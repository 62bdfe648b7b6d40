// Writes a GGUF file whole or not at all: under a temporary name beside the target, synced, then renamed.
// Tensors may be written in any order and in pieces; a file with a gap is never finished.
import { randomBytes } from "node:crypto";
import { closeSync, fsyncSync, ftruncateSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { Ds4Error, GgufError } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { MetadataValue } from "./gguf-file.ts";
import { encodeHeader, type PlacedTensor, type TensorDeclaration } from "./header-encoder.ts";
import { WrittenRanges } from "./written-ranges.ts";

/** Largest single write passed to the operating system. */
const MAX_WRITE_BYTES = 1 << 30;

/** What to write. */
export interface GgufWriterOptions {
  metadata: ReadonlyMap<string, MetadataValue>;
  /** In file order. */
  tensors: readonly TensorDeclaration[];
}

/**
 * A file being written. Call `writeTensor` or `writeAt` until every tensor is complete, then `finish`; on any
 * failure call `abort` (writing errors abort by themselves). The target appears only at `finish`.
 */
export class GgufWriter {
  readonly path: string;
  /** Offsets and sizes, in file order. */
  readonly tensors: readonly PlacedTensor[];
  readonly fileBytes: number;
  readonly #temporaryPath: string;
  readonly #byName: ReadonlyMap<string, PlacedTensor>;
  readonly #written = new Map<string, WrittenRanges>();
  #fd: number;
  /** A process that ends in the middle leaves no partial file either. */
  readonly #onExit = () => this.abort();

  /** Creates the temporary file and reserves its length. Throws GgufError or `io`. */
  constructor(path: string, options: GgufWriterOptions) {
    const encoded = encodeHeader(options.metadata, options.tensors);
    this.path = path;
    this.tensors = encoded.tensors;
    this.fileBytes = encoded.fileBytes;
    this.#byName = new Map(encoded.tensors.map((tensor) => [tensor.name, tensor]));
    this.#temporaryPath = `${path}.${randomBytes(6).toString("hex")}.partial`; // worker threads share a process id
    this.#fd = this.#guard("create", () => openSync(this.#temporaryPath, "wx"));
    process.once("exit", this.#onExit);
    this.#guard("extend", () => ftruncateSync(this.#fd, this.fileBytes)); // padding reads as zero
    this.#write(encoded.header, 0);
  }

  /** Appends `bytes` to the part of the tensor that is complete from its start. */
  writeTensor(name: string, bytes: Uint8Array): void {
    this.writeAt(name, this.#written.get(name)?.prefixBytes ?? 0, bytes);
  }

  /** Writes `bytes` at `startBytes` within the tensor. Any order; an overlap is refused. */
  writeAt(name: string, startBytes: number, bytes: Uint8Array): void {
    const tensor = this.#byName.get(name);
    if (tensor === undefined)
      throw new GgufError(`tensor ${quotedText(name)} was not declared for ${this.path}`);
    const endBytes = startBytes + bytes.length;
    const range = `bytes ${startBytes}..${endBytes} of tensor ${quotedText(name)}`;
    if (!Number.isSafeInteger(startBytes) || startBytes < 0 || endBytes > tensor.bytes) {
      throw new GgufError(`${range} cannot be written: it has ${tensor.bytes} bytes`);
    }
    const written = this.#written.get(name) ?? new WrittenRanges();
    if (!written.add(startBytes, endBytes)) throw new GgufError(`${range} are written twice`);
    this.#written.set(name, written);
    this.#write(bytes, tensor.offsetBytes + startBytes);
  }

  /**
   * Syncs and renames. Throws GgufError naming the first incomplete tensor, and removes the temporary file.
   * `allowHoles` leaves unwritten tensors as holes, which read as zeros: for files that only their header matters of.
   */
  finish(options: { allowHoles?: boolean } = {}): void {
    for (const tensor of options.allowHoles ? [] : this.tensors) {
      const written = this.#written.get(tensor.name)?.totalBytes ?? 0;
      if (written !== tensor.bytes) {
        this.abort();
        throw new GgufError(
          `tensor ${quotedText(tensor.name)} is incomplete: ${written} of ${tensor.bytes} bytes were written`,
        );
      }
    }
    this.#guard("sync", () => fsyncSync(this.#fd));
    closeSync(this.#fd);
    this.#fd = -1;
    this.#guard("rename", () => renameSync(this.#temporaryPath, this.path));
    process.removeListener("exit", this.#onExit);
    syncFolder(dirname(this.path));
  }

  /** Stops and removes the temporary file. Safe to call twice and after `finish`. */
  abort(): void {
    if (this.#fd >= 0) closeSync(this.#fd);
    this.#fd = -1;
    process.removeListener("exit", this.#onExit);
    rmSync(this.#temporaryPath, { force: true });
  }

  #write(bytes: Uint8Array, offsetBytes: number): void {
    if (this.#fd < 0)
      throw new Ds4Error("io", `${this.path} was written to after it was finished or aborted`);
    this.#guard("write", () => {
      let done = 0;
      while (done < bytes.length) {
        const length = Math.min(MAX_WRITE_BYTES, bytes.length - done);
        done += writeSync(this.#fd, bytes, done, length, offsetBytes + done);
      }
    });
  }

  #guard<T>(action: string, body: () => T): T {
    try {
      return body();
    } catch (error) {
      this.abort();
      const { code, message } = error as NodeJS.ErrnoException;
      const hint = code === "ENOSPC" ? `; it needs ${this.fileBytes} bytes of free disk` : "";
      throw new Ds4Error("io", `cannot ${action} ${this.path}: ${message}${hint}. Nothing was left behind.`, {
        cause: error,
      });
    }
  }
}

/** Makes the rename itself durable. Some file systems refuse to sync a folder; then the rename stands unsynced. */
function syncFolder(path: string): void {
  try {
    const fd = openSync(path, "r");
    try {
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
  } catch {
    // not supported here
  }
}
