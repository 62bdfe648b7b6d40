// A file while it is being downloaded: its bytes in NAME.partial, and beside them NAME.partial.json, which says what
// they are the beginning of. Together they let a later run go on, or tell that it must not.
import { createHash, type Hash } from "node:crypto";
import { type FileHandle, open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { CancelledError, Ds4Error } from "../core/errors.ts";

/** What identifies the remote file. */
export interface RemoteIdentity {
  url: string;
  /** The server's validator, if it is a strong one. */
  etag?: string;
  sizeBytes?: number;
  /** Hexadecimal. */
  sha256?: string;
}

const MAX_STATE_BYTES = 64 * 1024;
const HASH_PIECE_BYTES = 1 << 22;

/** An open partial file; bytes are appended in order and hashed on the way. */
export class PartialFile {
  /** Of the finished file. */
  readonly finalPath: string;
  readonly #handle: FileHandle;
  #identity: RemoteIdentity | undefined;
  #sizeBytes: number;
  /** Undefined while there are bytes on disk that it has not seen. */
  #hash: Hash | undefined;

  /** Opens or creates it. Throws `io`. */
  static async open(finalPath: string): Promise<PartialFile> {
    const path = `${finalPath}.partial`;
    try {
      const handle = await open(path, "r+").catch(() => open(path, "w+"));
      const { size } = await handle.stat();
      const identity = size > 0 ? await readIdentity(`${path}.json`) : undefined;
      return new PartialFile(finalPath, handle, size, identity);
    } catch (error) {
      throw ioError("cannot open", path, error);
    }
  }

  private constructor(
    finalPath: string,
    handle: FileHandle,
    sizeBytes: number,
    identity: RemoteIdentity | undefined,
  ) {
    this.finalPath = finalPath;
    this.#handle = handle;
    this.#sizeBytes = sizeBytes;
    this.#identity = identity;
    if (sizeBytes === 0) this.#hash = createHash("sha256");
  }

  /** Name on disk until it is finished. */
  get path(): string {
    return `${this.finalPath}.partial`;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** What the bytes are the beginning of; undefined when nobody knows. */
  get identity(): RemoteIdentity | undefined {
    return this.#identity;
  }

  /** Notes what the bytes are the beginning of. Throws `io`. */
  async setIdentity(identity: RemoteIdentity): Promise<void> {
    if (JSON.stringify(identity) === JSON.stringify(this.#identity)) return;
    this.#identity = identity;
    await this.#guard("cannot write", () => writeFile(`${this.path}.json`, `${JSON.stringify(identity)}\n`));
  }

  /** Brings the hash up to the bytes that an earlier run left. Throws `io`, `cancelled`. */
  async hashExisting(onBytes: (doneBytes: number) => void, signal?: AbortSignal): Promise<void> {
    if (this.#hash !== undefined) return;
    const hash = createHash("sha256");
    const piece = Buffer.alloc(Math.min(HASH_PIECE_BYTES, this.#sizeBytes));
    for (let at = 0; at < this.#sizeBytes; ) {
      if (signal?.aborted) throw new CancelledError();
      const length = Math.min(piece.length, this.#sizeBytes - at);
      const { bytesRead } = await this.#guard("cannot read", () => this.#handle.read(piece, 0, length, at));
      if (bytesRead === 0) throw new Ds4Error("io", `${this.path} became shorter while it was read`);
      hash.update(piece.subarray(0, bytesRead));
      at += bytesRead;
      onBytes(at);
    }
    this.#hash = hash;
  }

  /** Appends. Call `hashExisting` first. Throws `io`, for a full disk too. */
  async append(bytes: Uint8Array): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      const { bytesWritten } = await this.#guard("cannot write", () =>
        this.#handle.write(bytes, done, bytes.length - done, this.#sizeBytes + done),
      );
      done += bytesWritten;
    }
    this.#hash?.update(bytes);
    this.#sizeBytes += bytes.length;
  }

  /** Forgets all bytes. Throws `io`. */
  async restart(): Promise<void> {
    await this.#guard("cannot empty", () => this.#handle.truncate(0));
    this.#sizeBytes = 0;
    this.#identity = undefined;
    this.#hash = createHash("sha256");
  }

  /** Hash of all bytes, hexadecimal. Needs `hashExisting`. */
  digest(): string {
    if (this.#hash === undefined) throw new Error("internal error: the partial file was not hashed");
    return this.#hash.copy().digest("hex");
  }

  /** Makes it the finished file, at once and durably. Throws `io`. */
  async finish(): Promise<void> {
    await this.#guard("cannot finish", async () => {
      await this.#handle.sync();
      await this.#handle.close();
      await rename(this.path, this.finalPath);
      await rm(`${this.path}.json`, { force: true });
    });
  }

  /** Closes and removes it. Throws `io`. */
  async discard(): Promise<void> {
    await this.#guard("cannot remove", async () => {
      await this.#handle.close();
      await rm(this.path, { force: true });
      await rm(`${this.path}.json`, { force: true });
    });
  }

  /** Closes it; what is there stays. */
  async close(): Promise<void> {
    await this.#handle.close().catch(() => {});
    if (this.#sizeBytes === 0) {
      await rm(this.path, { force: true });
      await rm(`${this.path}.json`, { force: true });
    }
  }

  async #guard<T>(what: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw ioError(what, this.path, error);
    }
  }
}

function ioError(what: string, path: string, error: unknown): Ds4Error {
  if (error instanceof Ds4Error) return error;
  return new Ds4Error("io", `${what} ${path}: ${(error as Error).message}`, { cause: error });
}

// Undefined for whatever is not the file that `setIdentity` writes: the download then starts again.
async function readIdentity(path: string): Promise<RemoteIdentity | undefined> {
  try {
    const text = await readFile(path, "utf8");
    if (text.length > MAX_STATE_BYTES) return undefined;
    const { url, etag, sizeBytes, sha256 } = JSON.parse(text) as Record<string, unknown>;
    if (typeof url !== "string") return undefined;
    return {
      url,
      etag: typeof etag === "string" ? etag : undefined,
      sizeBytes: Number.isSafeInteger(sizeBytes) ? (sizeBytes as number) : undefined,
      sha256: typeof sha256 === "string" ? sha256 : undefined,
    };
  } catch {
    return undefined;
  }
}
