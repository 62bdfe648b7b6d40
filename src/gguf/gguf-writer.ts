// Writes a GGUF file whole or not at all: under a temporary name beside the target, synced, then renamed.
// Tensors may be written in any order and in pieces; a file with a gap is never finished.
import { closeSync, fsyncSync, ftruncateSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { Ds4Error, GgufError } from "../core/errors.ts";
import type { MetadataValue } from "./gguf-file.ts";
import { encodeHeader, type PlacedTensor, type TensorDeclaration } from "./header-encoder.ts";

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
  /** Bytes written so far and, for sequential writing, the next position, by tensor. */
  readonly #written = new Map<string, number>();
  #fd: number;

  /** Creates the temporary file and reserves its length. Throws GgufError or `io`. */
  constructor(path: string, options: GgufWriterOptions) {
    const encoded = encodeHeader(options.metadata, options.tensors);
    this.path = path;
    this.tensors = encoded.tensors;
    this.fileBytes = encoded.fileBytes;
    this.#byName = new Map(encoded.tensors.map((tensor) => [tensor.name, tensor]));
    this.#temporaryPath = `${path}.${process.pid}.partial`;
    this.#fd = this.#guard("create", () => openSync(this.#temporaryPath, "w"));
    this.#guard("extend", () => ftruncateSync(this.#fd, this.fileBytes)); // padding reads as zero
    this.#write(encoded.header, 0);
  }

  /** Appends `bytes` to the tensor: pieces follow one another. */
  writeTensor(name: string, bytes: Uint8Array): void {
    this.writeAt(name, this.#written.get(name) ?? 0, bytes);
  }

  /** Writes `bytes` at `startBytes` within the tensor. Pieces must not overlap; the order is free. */
  writeAt(name: string, startBytes: number, bytes: Uint8Array): void {
    const tensor = this.#byName.get(name);
    if (tensor === undefined) throw new GgufError(`tensor "${name}" was not declared for ${this.path}`);
    const written = (this.#written.get(name) ?? 0) + bytes.length;
    if (startBytes < 0 || startBytes + bytes.length > tensor.bytes || written > tensor.bytes) {
      throw new GgufError(`tensor "${name}" has ${tensor.bytes} bytes; a write would go beyond them`);
    }
    this.#write(bytes, tensor.offsetBytes + startBytes);
    this.#written.set(name, written);
  }

  /** Syncs and renames. Throws GgufError naming the first incomplete tensor, and removes the temporary file. */
  finish(): void {
    for (const tensor of this.tensors) {
      const written = this.#written.get(tensor.name) ?? 0;
      if (written !== tensor.bytes) {
        this.abort();
        throw new GgufError(
          `tensor "${tensor.name}" is incomplete: ${written} of ${tensor.bytes} bytes were written`,
        );
      }
    }
    this.#guard("sync", () => fsyncSync(this.#fd));
    closeSync(this.#fd);
    this.#fd = -1;
    this.#guard("rename", () => renameSync(this.#temporaryPath, this.path));
    syncFolder(dirname(this.path));
  }

  /** Stops and removes the temporary file. Safe to call twice and after `finish`. */
  abort(): void {
    if (this.#fd >= 0) closeSync(this.#fd);
    this.#fd = -1;
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
