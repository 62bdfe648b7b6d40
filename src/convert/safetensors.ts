// Reads the header of a .safetensors file and ranges of its tensors: u64 header length, JSON of name to dtype, shape
// and offsets, data. Every number is checked against the file before it is used.
import { Ds4Error } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import { openByteSource } from "../gguf/file-source.ts";

/** Longest header: the format's own limit. A shard of an official model takes about 200 KB. */
export const MAX_SAFETENSORS_HEADER_BYTES = 100_000_000;
/** Tensors of one file: the largest official model has 150,000 in all its shards. */
export const MAX_SAFETENSORS_TENSORS = 524_288;
/** Longest tensor name, in characters; official ones stay under 60. */
export const MAX_SAFETENSORS_NAME = 1024;
/** Dimensions of a tensor; official ones have two at most. */
const MAX_RANK = 8;
const LENGTH_BYTES = 8;

/** Element types of the format and their bytes. */
const DTYPE_BYTES = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E4M3: 1,
  F8_E5M2: 1,
  F8_E8M0: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  F64: 8,
  I64: 8,
  U64: 8,
} as const;

/** An element type. */
export type Dtype = keyof typeof DTYPE_BYTES;

/** One tensor of the header. */
export interface SafetensorsInfo {
  name: string;
  dtype: Dtype;
  /** Slowest first; empty for a scalar. */
  shape: readonly number[];
  /** Absolute offset in the file. */
  offsetBytes: number;
  bytes: number;
}

/** An open file. Close it when done. */
export interface SafetensorsFile {
  readonly path: string;
  readonly tensors: ReadonlyMap<string, SafetensorsInfo>;
  /** Reads `length` bytes from `start` within the tensor, fresh memory. Throws `io`. */
  read(tensor: SafetensorsInfo, start: number, length: number): Uint8Array;
  close(): void;
}

/** Opens a file and checks its header. Throws `io` or `safetensors`; nothing stays open then. */
export function openSafetensors(path: string): SafetensorsFile {
  const source = openByteSource(path);
  try {
    if (source.sizeBytes < LENGTH_BYTES) {
      throw fail(
        path,
        `expected a length of ${LENGTH_BYTES} bytes and a header, found ${source.sizeBytes} bytes`,
      );
    }
    const lengthBytes = new Uint8Array(LENGTH_BYTES);
    source.readInto(lengthBytes, 0);
    const headerBytes = Number(new DataView(lengthBytes.buffer).getBigUint64(0, true));
    const mostBytes = Math.min(MAX_SAFETENSORS_HEADER_BYTES, source.sizeBytes - LENGTH_BYTES);
    if (headerBytes < 2 || headerBytes > mostBytes) {
      throw fail(path, `expected a header of 2 to ${mostBytes} bytes, found a length of ${headerBytes}`);
    }
    const header = new Uint8Array(headerBytes);
    source.readInto(header, LENGTH_BYTES);
    const tensors = parseHeader(path, header, source.sizeBytes);
    return {
      path,
      tensors,
      read(tensor, start, length) {
        const target = new Uint8Array(length);
        source.readInto(target, tensor.offsetBytes + start);
        return target;
      },
      close: () => source.close(),
    };
  } catch (error) {
    source.close();
    throw error;
  }
}

function parseHeader(path: string, header: Uint8Array, fileBytes: number): Map<string, SafetensorsInfo> {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(header));
  } catch (error) {
    throw fail(path, `the header is no JSON: ${(error as Error).message.slice(0, 80)}`);
  }
  if (!isObject(json)) throw fail(path, "expected the header to be a JSON object of tensors");
  const dataStart = LENGTH_BYTES + header.length;
  const tensors = new Map<string, SafetensorsInfo>();
  for (const [name, entry] of Object.entries(json)) {
    if (name === "__metadata__") continue;
    if (tensors.size === MAX_SAFETENSORS_TENSORS) {
      throw fail(path, `expected at most ${MAX_SAFETENSORS_TENSORS} tensors, found more`);
    }
    tensors.set(name, parseEntry(path, name, entry, dataStart, fileBytes - dataStart));
  }
  checkCoverage(path, [...tensors.values()], dataStart, fileBytes);
  return tensors;
}

function parseEntry(
  path: string,
  name: string,
  entry: unknown,
  dataStart: number,
  dataBytes: number,
): SafetensorsInfo {
  const bad = (problem: string) => fail(path, `tensor ${quotedText(name)}: ${problem}`);
  if (name.length === 0 || name.length > MAX_SAFETENSORS_NAME) {
    throw bad(`expected a name of 1 to ${MAX_SAFETENSORS_NAME} characters, found ${name.length}`);
  }
  if (!isObject(entry)) throw bad("expected an object with dtype, shape and data_offsets");
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== "string" || !Object.hasOwn(DTYPE_BYTES, dtype)) {
    const known = Object.keys(DTYPE_BYTES).join(", ");
    throw bad(`unknown dtype ${quotedText(String(dtype))}; known: ${known}`);
  }
  if (!isCounts(shape) || shape.length > MAX_RANK) {
    throw bad(`expected a shape of at most ${MAX_RANK} whole numbers, found ${show(shape)}`);
  }
  if (!isCounts(offsets) || offsets.length !== 2 || offsets[0] > offsets[1] || offsets[1] > dataBytes) {
    throw bad(
      `expected data_offsets within the ${dataBytes} bytes of data, found ${show(offsets)}; ` +
        "is the file cut short? Download it again",
    );
  }
  const bytes = shape.reduce((product, size) => product * size, DTYPE_BYTES[dtype as Dtype]);
  if (bytes !== offsets[1] - offsets[0]) {
    throw bad(`${dtype} ${show(shape)} takes ${bytes} bytes, data_offsets span ${offsets[1] - offsets[0]}`);
  }
  return { name, dtype: dtype as Dtype, shape, offsetBytes: dataStart + offsets[0], bytes };
}

/** The format demands that tensors fill the data without overlap or hole; a cut or patched file shows up here. */
function checkCoverage(path: string, tensors: SafetensorsInfo[], dataStart: number, fileBytes: number): void {
  let at = dataStart;
  for (const tensor of tensors.sort((a, b) => a.offsetBytes - b.offsetBytes || a.bytes - b.bytes)) {
    if (tensor.offsetBytes !== at) {
      const problem = tensor.offsetBytes < at ? "overlaps another" : "follows a hole";
      throw fail(path, `tensor ${quotedText(tensor.name)} at offset ${tensor.offsetBytes} ${problem}`);
    }
    at += tensor.bytes;
  }
  if (at !== fileBytes) {
    throw fail(path, `the tensors end at byte ${at}, the file has ${fileBytes} bytes`);
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0);
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? "nothing").slice(0, 60);
}

function fail(path: string, problem: string): Ds4Error {
  return new Ds4Error("safetensors", `${path}: ${problem}`);
}
