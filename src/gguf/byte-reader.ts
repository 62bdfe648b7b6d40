// A forward reader over a byte source with one buffered window: header parsing touches only the header's bytes,
// in files of any size. Every read is checked against the bytes that are left.
import { GgufError } from "../core/errors.ts";
import type { ByteSource } from "./byte-source.ts";
import { MAX_HEADER_BYTES } from "./limits.ts";

/** Window size: a 129,280-token header of 5 MB takes a handful of reads. */
const WINDOW_BYTES = 1 << 20;

/** `ignoreBOM` keeps U+FEFF, which is a token like any other. */
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Reads little-endian values in order. Throws GgufError with the offset where reading stopped. */
export class ByteReader {
  readonly #source: ByteSource;
  readonly #endBytes: number;
  #window = new Uint8Array(0);
  #view = new DataView(this.#window.buffer);
  #windowStart = 0;
  #position = 0;

  constructor(source: ByteSource) {
    this.#source = source;
    this.#endBytes = Math.min(source.sizeBytes, MAX_HEADER_BYTES);
  }

  /** Name of the source, for messages. */
  get sourceName(): string {
    return this.#source.name;
  }

  /** Absolute offset of the next byte. */
  get offsetBytes(): number {
    return this.#position;
  }

  /** Bytes between here and the end of the file or of the largest header. */
  get leftBytes(): number {
    return this.#endBytes - this.#position;
  }

  /** An error at the current offset. */
  fail(message: string, cause?: unknown): GgufError {
    return new GgufError(`${this.#source.name}: ${message}`, this.#position, { cause });
  }

  u8(): number {
    const at = this.#take(1, "a byte");
    return this.#view.getUint8(at);
  }

  u32(what: string): number {
    const at = this.#take(4, what); // moves the window, so before the view is used
    return this.#view.getUint32(at, true);
  }

  u64(what: string): bigint {
    const at = this.#take(8, what);
    return this.#view.getBigUint64(at, true);
  }

  /** A u64 that is used as a count or size: at most `max`, which must be a safe integer. */
  size(what: string, max: number): number {
    const value = this.u64(what);
    if (value > BigInt(max)) {
      throw this.fail(
        `${what} is ${value}, at most ${max} is possible here: is the file damaged or truncated?`,
      );
    }
    return Number(value);
  }

  /** A length-prefixed UTF-8 string of at most `maxBytes` (and never more than what is left). */
  string(what: string, maxBytes: number): string {
    const length = this.size(`length of ${what}`, Math.min(maxBytes, Math.max(0, this.leftBytes - 8)));
    const start = this.#take(length, what);
    try {
      return utf8.decode(this.#window.subarray(start, start + length));
    } catch (cause) {
      throw this.fail(`${what} is not valid UTF-8`, cause);
    }
  }

  /** The next `length` bytes as fresh memory. */
  bytes(length: number, what: string): Uint8Array<ArrayBuffer> {
    this.#check(length, what);
    const copy = new Uint8Array(length);
    const buffered = Math.min(length, this.#windowStart + this.#window.length - this.#position);
    if (buffered === length) {
      const start = this.#position - this.#windowStart;
      copy.set(this.#window.subarray(start, start + length));
    } else {
      this.#source.readInto(copy, this.#position);
    }
    this.#position += length;
    return copy;
  }

  #check(length: number, what: string): void {
    if (length <= this.leftBytes) return;
    const end = this.#endBytes < this.#source.sizeBytes ? "the largest possible header" : "the file";
    throw this.fail(`expected ${length} bytes of ${what}, but ${end} ends after ${this.leftBytes}`);
  }

  /** Makes the next `length` bytes available in the window and steps over them; their index in the window. */
  #take(length: number, what: string): number {
    this.#check(length, what);
    if (this.#position + length > this.#windowStart + this.#window.length) {
      const bytes = Math.min(Math.max(WINDOW_BYTES, length), this.leftBytes);
      this.#window = new Uint8Array(bytes);
      this.#view = new DataView(this.#window.buffer);
      this.#source.readInto(this.#window, this.#position);
      this.#windowStart = this.#position;
    }
    const start = this.#position - this.#windowStart;
    this.#position += length;
    return start;
  }
}
