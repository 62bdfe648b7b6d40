// Key-value section of a GGUF header. Types are checked before sizes, sizes against the bytes left before
// anything is allocated.
import { quotedText } from "../core/quoted-text.ts";
import type { ByteReader } from "./byte-reader.ts";
import type { MetadataArray, MetadataArrayValues, MetadataScalarType, MetadataValue } from "./gguf-file.ts";
import {
  MAX_ARRAY_DEPTH,
  MAX_ARRAY_OBJECTS,
  MAX_KEY_BYTES,
  MAX_NESTED_ARRAYS,
  MAX_STRING_BYTES,
  MIN_KEY_BYTES,
} from "./limits.ts";

/** Value types by their number in the file. Source: GGUF specification. */
export const VALUE_TYPES: readonly (MetadataScalarType | "array")[] = [
  "u8",
  "i8",
  "u16",
  "i16",
  "u32",
  "i32",
  "f32",
  "bool",
  "string",
  "array",
  "u64",
  "i64",
  "f64",
];

/** Typed array and width of the numeric types. */
const NUMERIC = {
  u8: Uint8Array,
  i8: Int8Array,
  u16: Uint16Array,
  i16: Int16Array,
  u32: Uint32Array,
  i32: Int32Array,
  f32: Float32Array,
  f64: Float64Array,
  u64: BigUint64Array,
  i64: BigInt64Array,
} as const;

/** Reads `count` keys. Empty and duplicate keys are refused. */
export function parseMetadata(reader: ByteReader, count: number): Map<string, MetadataValue> {
  const parser = new MetadataParser(reader);
  const metadata = new Map<string, MetadataValue>();
  for (let index = 0; index < count; index++) {
    if (reader.leftBytes < MIN_KEY_BYTES) {
      throw reader.fail(`the header declares ${count} keys but the file ends after ${index}`);
    }
    const key = reader.string(`key ${index}`, MAX_KEY_BYTES);
    if (key === "") throw reader.fail(`key ${index} is empty`);
    if (metadata.has(key)) throw reader.fail(`key ${quotedText(key)} occurs twice`);
    metadata.set(key, parser.value(`key ${quotedText(key)}`));
  }
  return metadata;
}

/** Reads values; counts what costs more memory than its bytes in the file. */
class MetadataParser {
  readonly #reader: ByteReader;
  #arrayObjects = 0;
  #nestedArrays = 0;

  constructor(reader: ByteReader) {
    this.#reader = reader;
  }

  /** One value with its type; `what` names it in errors. */
  value(what: string): MetadataValue {
    const reader = this.#reader;
    const type = this.#type(what);
    if (type === "array") return this.#array(what, 1);
    if (type === "string") return { type, value: reader.string(what, MAX_STRING_BYTES) };
    if (type === "bool") return { type, value: this.#bool(reader.u8(), what) };
    const NumberArray = NUMERIC[type];
    const bytes = reader.bytes(NumberArray.BYTES_PER_ELEMENT, what);
    return { type, value: new NumberArray(bytes.buffer)[0] } as MetadataValue;
  }

  #type(what: string): MetadataScalarType | "array" {
    const id = this.#reader.u32(`type of ${what}`);
    const type = VALUE_TYPES[id];
    if (type === undefined) throw this.#reader.fail(`${what} has value type ${id}; known types are 0..12`);
    return type;
  }

  #bool(byte: number, what: string): boolean {
    if (byte > 1) throw this.#reader.fail(`${what}: expected a bool of 0 or 1, got ${byte}`);
    return byte === 1;
  }

  #array(what: string, depth: number): MetadataArray {
    const reader = this.#reader;
    if (depth > MAX_ARRAY_DEPTH)
      throw reader.fail(`${what}: arrays are nested deeper than ${MAX_ARRAY_DEPTH}`);
    const elementType = this.#type(what);
    const left = Math.max(0, reader.leftBytes - 8);
    const count = reader.size(
      `array length of ${what}`,
      Math.floor(left / smallestElementBytes(elementType)),
    );
    return { type: "array", elementType, values: this.#elements(what, elementType, count, depth) };
  }

  #elements(
    what: string,
    type: MetadataScalarType | "array",
    count: number,
    depth: number,
  ): MetadataArrayValues {
    const reader = this.#reader;
    if (type === "string" || type === "bool" || type === "array") this.#charge(what, type, count);
    if (type === "string") {
      const strings: string[] = [];
      for (let i = 0; i < count; i++) strings.push(reader.string(what, MAX_STRING_BYTES));
      return strings;
    }
    if (type === "array") {
      const arrays: MetadataArray[] = [];
      for (let i = 0; i < count; i++) arrays.push(this.#array(what, depth + 1));
      return arrays;
    }
    if (type === "bool") {
      const flags: boolean[] = [];
      for (const byte of reader.bytes(count, what)) flags.push(this.#bool(byte, what));
      return flags;
    }
    const NumberArray = NUMERIC[type];
    return new NumberArray(reader.bytes(count * NumberArray.BYTES_PER_ELEMENT, what).buffer);
  }

  /** Holds the elements of an array against the file's allowance, before anything is allocated for them. */
  #charge(what: string, type: "string" | "bool" | "array", count: number): void {
    this.#arrayObjects += count;
    if (type === "array") this.#nestedArrays += count;
    if (this.#arrayObjects > MAX_ARRAY_OBJECTS) {
      throw this.#reader.fail(`${what}: more than ${MAX_ARRAY_OBJECTS} strings, bools and arrays in arrays`);
    }
    if (this.#nestedArrays > MAX_NESTED_ARRAYS) {
      throw this.#reader.fail(`${what}: more than ${MAX_NESTED_ARRAYS} nested arrays`);
    }
  }
}

/** Fewest bytes one element can take: bounds the declared count. */
function smallestElementBytes(type: MetadataScalarType | "array"): number {
  if (type === "string") return 8;
  if (type === "array") return 12;
  if (type === "bool") return 1;
  return NUMERIC[type].BYTES_PER_ELEMENT;
}
