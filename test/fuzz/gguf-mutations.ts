// Ways to damage a GGUF file: blind ones on bytes, aimed ones on the integers that carry its structure, and ones that
// keep the container valid and change what it says.
import type { MetadataArray, MetadataValue } from "../../src/gguf/gguf-file.ts";
import type { BuiltField, BuiltGguf, BuiltTensor } from "../fixtures/gguf-builder.ts";

/** Seeded choices. */
export class Choices {
  readonly #next: () => number;

  /** `next` gives 32-bit unsigned integers. */
  constructor(next: () => number) {
    this.#next = next;
  }

  /** A whole number in 0..`limit` - 1; 0 when the limit is below 1. */
  below(limit: number): number {
    return limit < 1 ? 0 : Math.floor((this.#next() / 2 ** 32) * limit);
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)];
  }

  chance(probability: number): boolean {
    return this.#next() / 2 ** 32 < probability;
  }
}

/** Integers at which careless readers break: signs, widths, doubles' precision, products that wrap. */
const EXTREMES: readonly bigint[] = [
  ...[0n, 1n, 2n, 3n, 7n, 8n, 9n, 13n, 31n, 64n, 255n, 256n, 65_535n, 65_536n],
  ...[31n, 32n, 33n, 42n, 53n, 61n, 62n, 63n, 64n].flatMap((bits) => [2n ** bits - 1n, 2n ** bits]),
  ...[2n ** 53n + 1n, 2n ** 64n - 32n, 2n ** 61n + 8n, 0x0123_4567_89ab_cdefn],
];

/** The file with one to four faults. `others` lend bytes for splicing. */
export function damage(base: BuiltGguf, others: readonly BuiltGguf[], choices: Choices): Uint8Array {
  let bytes: Uint8Array = base.bytes.slice();
  for (let faults = 1 + choices.below(4); faults > 0; faults--) {
    const fault = choices.pick([
      overwriteField,
      overwriteField,
      flipBits,
      overwriteAnywhere,
      splice,
      truncate,
    ]);
    bytes = fault(bytes, base, choices, choices.pick(others));
  }
  return bytes;
}

type Fault = (bytes: Uint8Array, base: BuiltGguf, choices: Choices, other: BuiltGguf) => Uint8Array;

const overwriteField: Fault = (bytes, { fields }, choices) => {
  const field = choices.pick(fields);
  if (field.offsetBytes + field.widthBytes > bytes.length) return bytes;
  const old = readField(bytes, field);
  const left = BigInt(bytes.length - field.offsetBytes - field.widthBytes);
  const near = [old + 1n, old - 1n, old * 2n, old ^ 32n, left, left + 1n, left - 8n, left / 8n, left / 33n];
  writeInteger(bytes, field, choices.chance(0.4) ? choices.pick(near) : choices.pick(EXTREMES));
  return bytes;
};

const overwriteAnywhere: Fault = (bytes, { headerBytes }, choices) => {
  const widthBytes = choices.pick([4, 8] as const);
  const offsetBytes = choices.below(Math.min(headerBytes, bytes.length - widthBytes));
  if (bytes.length >= widthBytes) writeInteger(bytes, { offsetBytes, widthBytes }, choices.pick(EXTREMES));
  return bytes;
};

const flipBits: Fault = (bytes, { headerBytes }, choices) => {
  for (let flips = 1 + choices.below(8); flips > 0 && bytes.length > 0; flips--) {
    bytes[choices.below(Math.min(headerBytes, bytes.length))] ^= 1 << choices.below(8);
  }
  return bytes;
};

/** Removes a stretch, or replaces it by a stretch of another file, from one field to near another. */
const splice: Fault = (bytes, { fields }, choices, other) => {
  const start = Math.min(choices.pick(fields).offsetBytes, bytes.length);
  const removed = choices.pick([0, 1, 4, 8, 12, choices.below(200)]);
  const from = choices.pick(other.fields).offsetBytes;
  const inserted = choices.chance(0.5) ? other.bytes.subarray(from, from + choices.below(200)) : [];
  const tail = bytes.subarray(Math.min(start + removed, bytes.length));
  const spliced = new Uint8Array(start + inserted.length + tail.length);
  spliced.set(bytes.subarray(0, start));
  spliced.set(inserted, start);
  spliced.set(tail, start + inserted.length);
  return spliced;
};

const truncate: Fault = (bytes, { fields }, choices) => {
  if (choices.chance(0.7)) return bytes; // most truncated files fail in the same way
  const length = choices.chance(0.5)
    ? choices.pick(fields).offsetBytes + choices.below(9)
    : choices.below(bytes.length);
  return bytes.slice(0, length);
};

function readField(bytes: Uint8Array, { offsetBytes, widthBytes }: BuiltField): bigint {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  return widthBytes === 4 ? BigInt(view.getUint32(offsetBytes, true)) : view.getBigUint64(offsetBytes, true);
}

function writeInteger(bytes: Uint8Array, { offsetBytes, widthBytes }: BuiltField, value: bigint): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  if (widthBytes === 4) view.setUint32(offsetBytes, Number(BigInt.asUintN(32, value)), true);
  else view.setBigUint64(offsetBytes, BigInt.asUintN(64, value), true);
}

/** Changes one to three statements of a valid file: keys dropped or given other values, tensors reshaped. */
export function misstate(
  metadata: Map<string, MetadataValue>,
  tensors: BuiltTensor[],
  choices: Choices,
): void {
  for (let changes = 1 + choices.below(3); changes > 0; changes--) {
    if (choices.chance(0.2) && tensors.length > 0) changeTensor(tensors, choices);
    else if (metadata.size > 0) changeKey(metadata, choices);
  }
}

function changeKey(metadata: Map<string, MetadataValue>, choices: Choices): void {
  const key = choices.pick([...metadata.keys()]);
  const value = metadata.get(key)!;
  if (choices.chance(0.1)) metadata.delete(key);
  else if (value.type === "array" && choices.chance(0.7)) metadata.set(key, changedArray(value, choices));
  else metadata.set(key, anyValue(choices));
}

function changedArray(array: MetadataArray, choices: Choices): MetadataArray {
  const values = array.values.slice() as unknown[];
  const index = choices.below(values.length);
  if (choices.chance(0.3)) return { ...array, values: values.slice(0, index) as MetadataArray["values"] };
  const sample = values[0];
  if (typeof sample === "string") values[index] = choices.pick(TEXTS.concat(values as string[]));
  else if (typeof sample === "number") values[index] = choices.pick(NUMBERS);
  return { ...array, values: values as unknown as MetadataArray["values"] };
}

const TEXTS = [
  "",
  " ",
  "a",
  "a b",
  "\u0000",
  "\ufeff",
  "<0x-1>",
  "<0xZZ>",
  "<0x100>",
  "Ġ Ġ",
  "x".repeat(70_000),
  "😀",
];
const NUMBERS = [
  0,
  1,
  -1,
  2,
  3,
  4,
  5,
  6,
  7,
  64,
  127,
  128,
  1000,
  65_536,
  1e6,
  2 ** 24,
  2 ** 31 - 1,
  -(2 ** 31),
  2 ** 32 - 1,
];

function anyValue(choices: Choices): MetadataValue {
  const number = choices.pick(NUMBERS);
  const float = choices.pick([Number.NaN, Number.POSITIVE_INFINITY, -1, 0, 1e-45, 1e38, number]);
  const text = choices.pick(TEXTS);
  return choices.pick<MetadataValue>([
    { type: "u32", value: number >>> 0 },
    { type: "u32", value: number >>> 0 },
    { type: "i32", value: number | 0 },
    { type: "f32", value: float },
    { type: "f64", value: float },
    { type: "u64", value: BigInt.asUintN(64, BigInt(number) * 2n ** 30n) },
    { type: "i64", value: -(2n ** 63n) },
    { type: "bool", value: choices.chance(0.5) },
    { type: "string", value: text },
    { type: "array", elementType: "u8", values: Uint8Array.of(1, 2, 3) },
    { type: "array", elementType: "i32", values: Int32Array.from(NUMBERS) },
    { type: "array", elementType: "f32", values: Float32Array.of(float, 1, 2) },
    { type: "array", elementType: "u64", values: BigUint64Array.of(2n ** 64n - 1n) },
    { type: "array", elementType: "string", values: [text, "b"] },
    { type: "array", elementType: "array", values: [{ type: "array", elementType: "bool", values: [true] }] },
  ]);
}

function changeTensor(tensors: BuiltTensor[], choices: Choices): void {
  const index = choices.below(tensors.length);
  const tensor = tensors[index];
  const other = choices.pick(tensors);
  tensors[index] = choices.pick<BuiltTensor>([
    { ...tensor, name: choices.pick([`${tensor.name}x`, "blk.999999.attn_kv.weight", "\u001b[2J"]) },
    { ...tensor, dims: [...tensor.dims].reverse() },
    { ...tensor, dims: other.dims, data: other.data },
    { ...tensor, dims: [...tensor.dims, 1] },
    { ...tensor, typeId: choices.pick([0, 1, 8, 26, 30, 39]) },
  ]);
  if (choices.chance(0.1)) tensors.splice(index, 1);
}
