// The JSON files of a checkpoint: read with a size limit, values taken out with a check.
import { join } from "node:path";
import { Ds4Error } from "../core/errors.ts";
import { openByteSource } from "../gguf/file-source.ts";

/** An object parsed from a file that may be hostile. */
export type JsonObject = Record<string, unknown>;

/** Reads and parses `folder/name`, at most `maxBytes` long. Throws `io`, or `convert` when it is no JSON object. */
export function readJsonFile(folder: string, name: string, maxBytes: number): JsonObject {
  const path = join(folder, name);
  const source = openByteSource(path);
  try {
    if (source.sizeBytes > maxBytes) {
      throw new Ds4Error("convert", `${path}: expected at most ${maxBytes} bytes, found ${source.sizeBytes}`);
    }
    const bytes = new Uint8Array(source.sizeBytes);
    source.readInto(bytes, 0);
    return parseObject(path, bytes);
  } finally {
    source.close();
  }
}

function parseObject(path: string, bytes: Uint8Array): JsonObject {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw new Ds4Error("convert", `${path}: no valid JSON: ${(error as Error).message.slice(0, 80)}`);
  }
  if (typeof json !== "object" || json === null || Array.isArray(json)) {
    throw new Ds4Error("convert", `${path}: expected a JSON object`);
  }
  return json as JsonObject;
}

/** Takes values out of a parsed file; every method throws `convert` naming the key, what was expected and found. */
export class JsonReader {
  readonly path: string;
  readonly #object: JsonObject;
  readonly #prefix: string;

  constructor(path: string, object: JsonObject, prefix = "") {
    this.path = path;
    this.#object = object;
    this.#prefix = prefix;
  }

  has(key: string): boolean {
    return Object.hasOwn(this.#object, key) && this.#object[key] !== null;
  }

  get(key: string): unknown {
    return this.has(key) ? this.#object[key] : undefined;
  }

  integer(key: string, min: number, max: number): number {
    const value = this.get(key);
    if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) return value;
    throw this.fail(key, `a whole number in ${min}..${max}`);
  }

  real(key: string, min = 0): number {
    const value = this.get(key);
    if (typeof value === "number" && Number.isFinite(value) && value >= min) return value;
    throw this.fail(key, `a number >= ${min}`);
  }

  flag(key: string): boolean {
    const value = this.get(key);
    if (typeof value === "boolean") return value;
    throw this.fail(key, "true or false");
  }

  integers(key: string, maxLength: number): number[] {
    const value = this.get(key);
    const isGood = (item: unknown) => typeof item === "number" && Number.isInteger(item) && item >= 0;
    if (Array.isArray(value) && value.length <= maxLength && value.every(isGood)) return value;
    throw this.fail(key, `a list of at most ${maxLength} whole numbers`);
  }

  /** Throws unless the value is one of `known`; returns it. */
  oneOf<T extends string | boolean>(key: string, known: readonly T[]): T {
    const value = this.get(key) as T;
    if (known.includes(value)) return value;
    throw this.fail(key, known.map((item) => JSON.stringify(item)).join(" or "));
  }

  object(key: string): JsonReader {
    const value = this.get(key);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      return new JsonReader(this.path, value as JsonObject, `${this.#prefix}${key}.`);
    }
    throw this.fail(key, "an object");
  }

  fail(key: string, expected: string): Ds4Error {
    const found = JSON.stringify(this.get(key))?.slice(0, 80) ?? "nothing";
    return new Ds4Error(
      "convert",
      `${this.path}: "${this.#prefix}${key}": expected ${expected}, found ${found}`,
    );
  }
}
