// Key-value section of a GGUF header. Types are checked before sizes, sizes against the bytes left before
// anything is allocated.

import type { ByteReader } from "./byte-reader.ts";
import type { MetadataArray, MetadataArrayValues, MetadataScalarType, MetadataValue } from "./gguf-file.ts";
import { MAX_ARRAY_DEPTH, MAX_KEY_BYTES, MIN_KEY_BYTES } from "./limits.ts";

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

/** Reads `count` keys. Duplicate keys are refused. */
export function parseMetadata(reader: ByteReader, count: number): Map<string, MetadataValue> {
  const metadata = new Map<string, MetadataValue>();
  for (let index = 0; index < count; index++) {
    if (reader.leftBytes < MIN_KEY_BYTES) {
      throw reader.fail(`the header declares ${count} keys but the file ends after ${index}`);
    }
    const key = reader.string(`key ${index}`, MAX_KEY_BYTES);
    if (metadata.has(key)) throw reader.fail(`key "${key}" occurs twice`);
    metadata.set(key, parseValue(reader, key));
  }
  return metadata;
}

function parseValue(reader: ByteReader, key: string): MetadataValue {
  const type = parseType(reader, key);
  if (type === "array") return parseArray(reader, key, 1);
  if (type === "string") return { type, value: reader.string(`value of "${key}"`, reader.leftBytes) };
  if (type === "bool") return { type, value: parseBool(reader, key) };
  const NumberArray = NUMERIC[type];
  const bytes = reader.bytes(NumberArray.BYTES_PER_ELEMENT, `value of "${key}"`);
  return { type, value: new NumberArray(bytes.buffer)[0] } as MetadataValue;
}

function parseType(reader: ByteReader, key: string): MetadataScalarType | "array" {
  const id = reader.u32(`value type of "${key}"`);
  const type = VALUE_TYPES[id];
  if (type === undefined) throw reader.fail(`key "${key}" has value type ${id}; known types are 0..12`);
  return type;
}

function parseBool(reader: ByteReader, key: string): boolean {
  const byte = reader.u8();
  if (byte > 1) throw reader.fail(`key "${key}": expected a bool of 0 or 1, got ${byte}`);
  return byte === 1;
}

function parseArray(reader: ByteReader, key: string, depth: number): MetadataArray {
  if (depth > MAX_ARRAY_DEPTH)
    throw reader.fail(`key "${key}": arrays are nested deeper than ${MAX_ARRAY_DEPTH}`);
  const elementType = parseType(reader, key);
  const left = Math.max(0, reader.leftBytes - 8);
  const count = reader.size(`array length of "${key}"`, Math.floor(left / smallestElementBytes(elementType)));
  return { type: "array", elementType, values: parseElements(reader, key, elementType, count, depth) };
}

/** Fewest bytes one element can take: bounds the declared count. */
function smallestElementBytes(type: MetadataScalarType | "array"): number {
  if (type === "string") return 8;
  if (type === "array") return 12;
  if (type === "bool") return 1;
  return NUMERIC[type].BYTES_PER_ELEMENT;
}

function parseElements(
  reader: ByteReader,
  key: string,
  type: MetadataScalarType | "array",
  count: number,
  depth: number,
): MetadataArrayValues {
  if (type === "string") {
    const strings: string[] = [];
    const what = `element of "${key}"`;
    for (let i = 0; i < count; i++) strings.push(reader.string(what, reader.leftBytes));
    return strings;
  }
  if (type === "array") {
    const arrays: MetadataArray[] = [];
    for (let i = 0; i < count; i++) arrays.push(parseArray(reader, key, depth + 1));
    return arrays;
  }
  if (type === "bool")
    return [...reader.bytes(count, `array "${key}"`)].map((byte) => checkBool(reader, key, byte));
  const NumberArray = NUMERIC[type];
  return new NumberArray(reader.bytes(count * NumberArray.BYTES_PER_ELEMENT, `array "${key}"`).buffer);
}

function checkBool(reader: ByteReader, key: string, byte: number): boolean {
  if (byte > 1) throw reader.fail(`key "${key}": expected bools of 0 or 1, got ${byte}`);
  return byte === 1;
}
