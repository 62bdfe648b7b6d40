// The older binary form of an importance matrix, little-endian: i32 entries; per entry i32 name length, name, i32
// calls, i32 values, f32[values] (mean square x calls); what follows the entries is ignored.
import { Ds4Error } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { ByteSource } from "../gguf/byte-source.ts";
import { openByteSource } from "../gguf/file-source.ts";
import type { ImatrixIndex, ImatrixSlot } from "./imatrix-slots.ts";

/** Entries of one file; the largest official models have under 1,500. */
const MAX_ENTRIES = 65_536;
/** Longest tensor name. ggml itself stops at 64. */
const MAX_NAME_BYTES = 1024;
const GGUF_MAGIC = 0x46554747;

/** Whether the file lacks the mark of the GGUF form. Throws `io`. */
export function isLegacyImatrix(path: string): boolean {
  const source = openByteSource(path);
  try {
    if (source.sizeBytes < 4)
      throw fail(path, `expected an importance matrix, found ${source.sizeBytes} bytes`);
    return new Walker(source).u32() !== GGUF_MAGIC;
  } finally {
    source.close();
  }
}

/** Opens the file and reads its table. Throws `io` or `convert`; nothing stays open then. */
export function openImatrixLegacy(path: string): ImatrixIndex {
  const source = openByteSource(path);
  try {
    const walker = new Walker(source);
    const entryCount = walker.u32();
    if (entryCount < 1 || entryCount > MAX_ENTRIES) {
      throw fail(
        path,
        `expected 1 to ${MAX_ENTRIES} entries, found ${entryCount}; is it an importance matrix?`,
      );
    }
    const slots = new Map<string, ImatrixSlot>();
    for (let index = 0; index < entryCount; index++) {
      const { name, slot } = readSlot(walker, source, index);
      if (slots.has(name)) throw fail(path, `entry ${quotedText(name)} occurs twice`);
      slots.set(name, slot);
    }
    return { slots, datasets: [], chunkCount: undefined, close: () => source.close() };
  } catch (error) {
    source.close();
    throw error;
  }
}

function readSlot(walker: Walker, source: ByteSource, index: number): { name: string; slot: ImatrixSlot } {
  const nameBytes = walker.u32();
  if (nameBytes < 1 || nameBytes > MAX_NAME_BYTES) {
    throw fail(
      source.name,
      `entry ${index}: expected a name of 1 to ${MAX_NAME_BYTES} bytes, found ${nameBytes}`,
    );
  }
  const name = walker.text(nameBytes);
  const calls = walker.u32();
  const sumCount = walker.u32();
  if (calls > 0x7fff_ffff || sumCount < 1) {
    throw fail(source.name, `entry ${quotedText(name)}: ${calls} calls and ${sumCount} values make no sense`);
  }
  const startBytes = walker.skip(sumCount * Float32Array.BYTES_PER_ELEMENT, name);
  const read = (start: number, count: number) => {
    const values = new Float32Array(count);
    source.readInto(new Uint8Array(values.buffer), startBytes + start * Float32Array.BYTES_PER_ELEMENT);
    return values;
  };
  // No call count means that the values are means already.
  return { name, slot: { sumCount, counts: Float32Array.of(calls || 1), read } };
}

/** Reads forward, every length checked against the bytes left. */
class Walker {
  readonly #source: ByteSource;
  #at = 0;

  constructor(source: ByteSource) {
    this.#source = source;
  }

  u32(): number {
    const bytes = this.#take(4, "a number");
    return new DataView(bytes.buffer).getUint32(0, true);
  }

  text(bytes: number): string {
    return new TextDecoder().decode(this.#take(bytes, "a name"));
  }

  /** Moves over `bytes` and returns where they start. */
  skip(bytes: number, what: string): number {
    const start = this.#at;
    this.#check(bytes, `the values of ${quotedText(what)}`);
    this.#at += bytes;
    return start;
  }

  #take(bytes: number, what: string): Uint8Array {
    this.#check(bytes, what);
    const target = new Uint8Array(bytes);
    this.#source.readInto(target, this.#at);
    this.#at += bytes;
    return target;
  }

  #check(bytes: number, what: string): void {
    const left = this.#source.sizeBytes - this.#at;
    if (bytes > left) {
      throw fail(
        this.#source.name,
        `expected ${bytes} bytes for ${what} at offset ${this.#at}, found ${left}`,
      );
    }
  }
}

function fail(path: string, problem: string): Ds4Error {
  return new Ds4Error("convert", `${path}: ${problem}. The file is damaged or no importance matrix.`);
}
