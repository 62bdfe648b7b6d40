// The parsed header of a GGUF file: metadata and tensor table, no weights. What every later stage reads.
import type { GgmlType } from "../blocks/ggml-types.ts";
import { Ds4Error } from "../core/errors.ts";

/** Scalar value types of GGUF metadata. */
export type MetadataScalarType =
  | "u8"
  | "i8"
  | "u16"
  | "i16"
  | "u32"
  | "i32"
  | "f32"
  | "bool"
  | "string"
  | "u64"
  | "i64"
  | "f64";

/** Numbers are typed arrays of the element's own width; strings and bools plain arrays; u64/i64 BigInt arrays. */
export type MetadataArrayValues =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array
  | BigUint64Array
  | BigInt64Array
  | string[]
  | boolean[]
  | MetadataArray[];

/** An array value; `elementType` is "array" for nested ones. */
export interface MetadataArray {
  type: "array";
  elementType: MetadataScalarType | "array";
  values: MetadataArrayValues;
}

/** One metadata value with the type it has in the file. u64 and i64 are BigInt. */
export type MetadataValue =
  | { type: Exclude<MetadataScalarType, "bool" | "string" | "u64" | "i64">; value: number }
  | { type: "bool"; value: boolean }
  | { type: "string"; value: string }
  | { type: "u64" | "i64"; value: bigint }
  | MetadataArray;

/** One tensor of the table. */
export interface TensorInfo {
  name: string;
  type: GgmlType;
  /** Sizes fastest first: `dims[0]` is the row length. 1 to 4 entries, each >= 1. */
  dims: readonly number[];
  /** Which part of a split file holds it; 0 for a single file. */
  fileIndex: number;
  /** Absolute offset in that part. */
  offsetBytes: number;
  bytes: number;
}

/** Values of a tensor. Throws `memory` where they are too many for a number to count. */
export function valueCount({ name, dims }: Pick<TensorInfo, "name" | "dims">): number {
  const count = dims.reduce((total, size) => total * size, 1);
  if (Number.isSafeInteger(count)) return count;
  throw new Ds4Error("memory", `tensor "${name}" has too many values: [${dims.join(", ")}]`);
}

/** Reads the bytes of an open GGUF file (all its parts). Close it when done. */
export interface GgufFile {
  /** Name for messages: the path, or what the byte source calls itself. */
  readonly name: string;
  readonly version: 2 | 3;
  readonly alignmentBytes: number;
  readonly metadata: ReadonlyMap<string, MetadataValue>;
  /** In file order of the first part, then the next parts. */
  readonly tensors: readonly TensorInfo[];
  /** Paths (or source names) of all parts. */
  readonly parts: readonly string[];
  /** Total bytes of all parts. */
  readonly sizeBytes: number;
  /** Open descriptors of the parts when all are files, for readers of their own; valid until `close`. */
  readonly descriptors?: readonly number[];
  tensor(name: string): TensorInfo | undefined;
  /** Reads `length` bytes from `start` within the tensor. Fresh memory, owned by the caller. */
  readTensor(tensor: TensorInfo, start?: number, length?: number): Uint8Array;
  /** Fills `target` with the tensor's bytes from `start` on. */
  readTensorInto(tensor: TensorInfo, target: Uint8Array, start?: number): void;
  close(): void;
}
