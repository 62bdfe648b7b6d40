// A file on disk as a byte source. Reads synchronously: the callers run in a worker or at start-up.
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { Ds4Error } from "../core/errors.ts";
import type { ByteSource } from "./byte-source.ts";

/** Largest single read passed to the operating system; Linux itself stops at 2^31 - 4096. */
const MAX_READ_BYTES = 1 << 30;

/** Opens a file for reading. Throws `io` when it cannot be opened or is not a regular file. */
export function openByteSource(path: string): ByteSource {
  let fd: number;
  try {
    // Without O_NONBLOCK (absent on Windows), opening a named pipe would wait for a writer for ever.
    fd = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (error) {
    throw new Ds4Error("io", `cannot open ${path}: ${(error as Error).message}`, { cause: error });
  }
  const stats = fstatSync(fd);
  if (!stats.isFile()) {
    closeSync(fd);
    throw new Ds4Error(
      "io",
      `cannot read ${path}: expected a file, found a ${stats.isDirectory() ? "folder" : "device"}`,
    );
  }
  return new FileByteSource(path, fd, stats.size);
}

class FileByteSource implements ByteSource {
  readonly name: string;
  readonly sizeBytes: number;
  #fd: number;

  constructor(name: string, fd: number, sizeBytes: number) {
    this.name = name;
    this.#fd = fd;
    this.sizeBytes = sizeBytes;
  }

  get descriptor(): number {
    if (this.#fd < 0) throw new Ds4Error("io", `${this.name} was read after it was closed`);
    return this.#fd;
  }

  readInto(target: Uint8Array, offsetBytes: number): void {
    if (this.#fd < 0) throw new Ds4Error("io", `${this.name} was read after it was closed`);
    let done = 0;
    while (done < target.length) {
      const length = Math.min(MAX_READ_BYTES, target.length - done);
      let count: number;
      try {
        count = readSync(this.#fd, target, done, length, offsetBytes + done);
      } catch (error) {
        const where = `${this.name} at offset ${offsetBytes + done}`;
        throw new Ds4Error("io", `cannot read ${where}: ${(error as Error).message}`, { cause: error });
      }
      if (count === 0) {
        throw new Ds4Error(
          "io",
          `${this.name} ended at offset ${offsetBytes + done}, ${target.length - done} bytes short: was it truncated after opening?`,
        );
      }
      done += count;
    }
  }

  close(): void {
    if (this.#fd >= 0) closeSync(this.#fd);
    this.#fd = -1;
  }
}
