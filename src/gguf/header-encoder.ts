// Encodes a GGUF v3 header: metadata and tensor table, with offsets computed up front. Pure bytes, no I/O.
import { type GgmlType, ggmlType, tensorBytes } from "../blocks/ggml-types.ts";
import { GgufError } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import { alignUp } from "../core/units.ts";
import { alignmentOf } from "./alignment.ts";
import type { MetadataArray, MetadataValue } from "./gguf-file.ts";
import { MAX_DIMS, MAX_KEY_BYTES, MAX_TENSOR_NAME_BYTES } from "./limits.ts";
import { VALUE_TYPES } from "./metadata-parser.ts";

/** A tensor to be written. */
export interface TensorDeclaration {
  name: string;
  type: GgmlType;
  /** Fastest first, 1 to 4 sizes. */
  dims: readonly number[];
}

/** Where a declared tensor lies in the file. */
export interface PlacedTensor extends TensorDeclaration {
  offsetBytes: number;
  bytes: number;
}

/** A header ready to be written at offset 0, and what follows from it. */
export interface EncodedHeader {
  /** Header bytes including the padding before the data section. */
  header: Uint8Array;
  tensors: PlacedTensor[];
  fileBytes: number;
}

/** Encodes the header. Throws GgufError on names, dims or values that the format cannot hold. */
export function encodeHeader(
  metadata: ReadonlyMap<string, MetadataValue>,
  declarations: readonly TensorDeclaration[],
): EncodedHeader {
  const alignmentBytes = alignmentOf("header to write", metadata);
  const out = new ByteSink();
  out.raw(new TextEncoder().encode("GGUF"));
  out.u32(3);
  out.u64(declarations.length);
  out.u64(metadata.size);
  for (const [key, value] of metadata) {
    checkKey(key);
    out.string(key);
    encodeValue(out, key, value);
  }
  const placed = placeDeclarations(declarations, alignmentBytes);
  for (const tensor of placed.tensors) {
    out.string(tensor.name);
    out.u32(tensor.dims.length);
    for (const dim of tensor.dims) out.u64(dim);
    out.u32(ggmlType(tensor.type).id);
    out.u64(tensor.offsetBytes);
  }
  const header = out.finish(alignmentBytes);
  const tensors = placed.tensors.map((tensor) => ({
    ...tensor,
    offsetBytes: header.length + tensor.offsetBytes,
  }));
  return { header, tensors, fileBytes: header.length + placed.dataBytes };
}

function checkKey(key: string): void {
  const bytes = Buffer.byteLength(key);
  if (bytes < 1 || bytes > MAX_KEY_BYTES) {
    throw new GgufError(
      `metadata key ${quotedText(key)}: expected 1 to ${MAX_KEY_BYTES} bytes, got ${bytes}`,
    );
  }
}

function placeDeclarations(declarations: readonly TensorDeclaration[], alignmentBytes: number) {
  const names = new Set<string>();
  const tensors: PlacedTensor[] = [];
  let dataBytes = 0;
  for (const { name, type, dims } of declarations) {
    if (names.has(name)) throw new GgufError(`tensor ${quotedText(name)} is declared twice`);
    names.add(name);
    if (name.length === 0 || new TextEncoder().encode(name).length > MAX_TENSOR_NAME_BYTES) {
      throw new GgufError(`tensor name ${quotedText(name)}: expected 1 to ${MAX_TENSOR_NAME_BYTES} bytes`);
    }
    if (
      dims.length < 1 ||
      dims.length > MAX_DIMS ||
      dims.some((dim) => !Number.isSafeInteger(dim) || dim < 1)
    ) {
      throw new GgufError(
        `tensor ${quotedText(name)}: expected 1 to ${MAX_DIMS} dimensions >= 1, got [${dims.join(", ")}]`,
      );
    }
    const bytes = tensorBytes(type, dims);
    if (!Number.isSafeInteger(dataBytes + bytes))
      throw new GgufError(`tensor ${quotedText(name)} is too large`);
    tensors.push({ name, type, dims, offsetBytes: dataBytes, bytes });
    dataBytes = alignUp(dataBytes + bytes, alignmentBytes);
  }
  return { tensors, dataBytes };
}

function encodeValue(out: ByteSink, key: string, value: MetadataValue): void {
  out.u32(VALUE_TYPES.indexOf(value.type));
  if (value.type === "array") encodeArray(out, key, value);
  else if (value.type === "string") out.string(value.value);
  else out.number(value.type, value.value, key);
}

function encodeArray(out: ByteSink, key: string, array: MetadataArray): void {
  out.u32(VALUE_TYPES.indexOf(array.elementType));
  out.u64(array.values.length);
  for (const element of array.values) {
    if (typeof element === "string") out.string(element);
    else if (typeof element === "object") {
      encodeArray(out, key, element);
    } else if (array.elementType !== "array" && array.elementType !== "string") {
      out.number(array.elementType, element, key);
    } else {
      throw new GgufError(
        `key ${quotedText(key)}: an array of ${array.elementType} holds a ${typeof element}`,
      );
    }
  }
}

type NumberType = Exclude<(typeof VALUE_TYPES)[number], "array" | "string">;

/** A growing little-endian buffer. */
class ByteSink {
  #bytes = new Uint8Array(1 << 16);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;

  raw(bytes: Uint8Array): void {
    const at = this.#reserve(bytes.length);
    this.#bytes.set(bytes, at);
  }

  u32(value: number): void {
    const at = this.#reserve(4);
    this.#view.setUint32(at, value, true);
  }

  u64(value: number): void {
    const at = this.#reserve(8);
    this.#view.setBigUint64(at, BigInt(value), true);
  }

  string(text: string): void {
    if (!text.isWellFormed())
      throw new GgufError(`a text with a lone surrogate cannot be stored: ${JSON.stringify(text)}`);
    const bytes = new TextEncoder().encode(text);
    this.u64(bytes.length);
    this.raw(bytes);
  }

  number(type: NumberType, value: number | bigint | boolean, key: string): void {
    const bigRange = BIG_RANGES[type];
    if (bigRange && (typeof value !== "bigint" || value < bigRange[0] || value > bigRange[1])) {
      throw new GgufError(`key ${quotedText(key)}: ${value} is no BigInt that fits ${type}`);
    }
    const number = Number(value);
    const range = INTEGER_RANGES[type];
    if (range && !(Number.isInteger(number) && number >= range[0] && number <= range[1])) {
      throw new GgufError(`key ${quotedText(key)}: ${value} does not fit ${type}`);
    }
    const at = this.#reserve(8);
    const view = this.#view;
    this.#length -= 8 - NUMBER_BYTES[type];
    if (type === "f32") view.setFloat32(at, number, true);
    else if (type === "f64") view.setFloat64(at, number, true);
    else if (type === "u64" || type === "i64") view.setBigInt64(at, BigInt.asIntN(64, BigInt(value)), true);
    else view.setBigInt64(at, BigInt(number), true); // narrower types are its low bytes; the rest is overwritten
  }

  /** Everything so far, zero-padded to the alignment. */
  finish(alignmentBytes: number): Uint8Array {
    const padded = new Uint8Array(alignUp(this.#length, alignmentBytes));
    padded.set(this.#bytes.subarray(0, this.#length));
    return padded;
  }

  #reserve(bytes: number): number {
    const at = this.#length;
    if (at + bytes > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(this.#bytes.length * 2, at + bytes));
      grown.set(this.#bytes.subarray(0, at));
      this.#bytes = grown;
      this.#view = new DataView(grown.buffer);
    }
    this.#length += bytes;
    return at;
  }
}

const NUMBER_BYTES: Record<NumberType, number> = {
  u8: 1,
  i8: 1,
  bool: 1,
  u16: 2,
  i16: 2,
  u32: 4,
  i32: 4,
  f32: 4,
  u64: 8,
  i64: 8,
  f64: 8,
};

const INTEGER_RANGES: Partial<Record<NumberType, readonly [number, number]>> = {
  u8: [0, 255],
  i8: [-128, 127],
  bool: [0, 1],
  u16: [0, 65_535],
  i16: [-32_768, 32_767],
  u32: [0, 4_294_967_295],
  i32: [-2_147_483_648, 2_147_483_647],
};

const BIG_RANGES: Partial<Record<NumberType, readonly [bigint, bigint]>> = {
  u64: [0n, 2n ** 64n - 1n],
  i64: [-(2n ** 63n), 2n ** 63n - 1n],
};
