// Typed access to GGUF metadata: numbers of any width, scalars or arrays, with errors that name the key. Knows
// nothing of models; which keys exist and what they mean is `spec-reader.ts`'s business.

import { UnsupportedModelError } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { MetadataValue } from "../gguf/gguf-file.ts";

/** Inclusive bounds of a number. */
export interface NumberBounds {
  min: number;
  max: number;
}

/**
 * Reads keys below one prefix (`deepseek4.`) of a metadata table. Converters disagree on widths (u32, i32, u64,
 * f32, f64) and on scalar against array; all are accepted where the value is the same number. Every failure is
 * an `unsupported-model` error naming the full key.
 */
export class MetadataReader {
  readonly #metadata: ReadonlyMap<string, MetadataValue>;
  readonly #prefix: string;
  readonly #fileName: string;

  constructor(metadata: ReadonlyMap<string, MetadataValue>, prefix: string, fileName: string) {
    this.#metadata = metadata;
    this.#prefix = prefix;
    this.#fileName = fileName;
  }

  /** Whether the key (without prefix) is present. */
  has(key: string): boolean {
    return this.#metadata.has(this.#prefix + key);
  }

  /** A required whole number within the bounds. */
  integer(key: string, bounds: NumberBounds): number {
    const value = this.#number(key);
    if (!Number.isInteger(value) || value < bounds.min || value > bounds.max) {
      throw this.fail(key, `a whole number in ${bounds.min}..${bounds.max}`, String(value));
    }
    return value;
  }

  /** As `integer`, or `fallback` when the key is absent. Only for keys whose absence has one documented meaning. */
  integerOr(key: string, bounds: NumberBounds, fallback: number): number {
    return this.has(key) ? this.integer(key, bounds) : fallback;
  }

  /** A required finite number within the bounds. */
  real(key: string, bounds: NumberBounds): number {
    const value = this.#number(key);
    if (!(value >= bounds.min && value <= bounds.max)) {
      throw this.fail(key, `a number in ${bounds.min}..${bounds.max}`, String(value));
    }
    return value;
  }

  /** A required true or false. */
  flag(key: string): boolean {
    const value = this.#required(key);
    if (value.type !== "bool") throw this.fail(key, "true or false", describe(value));
    return value.value;
  }

  /** A required string. */
  text(key: string): string {
    const value = this.#required(key);
    if (value.type !== "string") throw this.fail(key, "a string", describe(value));
    return value.value;
  }

  /**
   * One number per layer: an array of at least `count` entries (longer is normal, the draft block follows), or
   * one number that holds for all.
   */
  numbers(key: string, count: number, bounds: NumberBounds): number[] {
    const value = this.#required(key);
    let values: number[];
    if (value.type === "array") {
      if (!isNumericArray(value.values)) throw this.fail(key, "an array of numbers", describe(value));
      if (value.values.length < count) {
        throw this.fail(key, `at least ${count} entries (one per layer)`, `${value.values.length} entries`);
      }
      values = Array.from(value.values.subarray(0, count), Number);
    } else {
      values = new Array<number>(count).fill(this.#number(key));
    }
    const wrong = values.findIndex((entry) => !(entry >= bounds.min && entry <= bounds.max));
    if (wrong >= 0) {
      throw this.fail(key, `numbers in ${bounds.min}..${bounds.max}`, `${values[wrong]} at entry ${wrong}`);
    }
    return values;
  }

  /** The error for a key whose value cannot be used: names the file, the full key, what was expected and found. */
  fail(key: string, expected: string, found: string): UnsupportedModelError {
    return new UnsupportedModelError(
      `${this.#fileName}: metadata key "${this.#prefix}${key}": expected ${expected}, found ${found}`,
    );
  }

  #required(key: string): MetadataValue {
    const value = this.#metadata.get(this.#prefix + key);
    if (value !== undefined) return value;
    throw new UnsupportedModelError(
      `${this.#fileName}: metadata key "${this.#prefix}${key}" is missing; it changes the model's mathematics ` +
        `and is not guessed. Convert the checkpoint again with a current converter`,
    );
  }

  #number(key: string): number {
    const value = this.#required(key);
    if (value.type === "array" || value.type === "string" || value.type === "bool") {
      throw this.fail(key, "a number", describe(value));
    }
    return Number(value.value);
  }
}

type NumericArray = Exclude<Extract<MetadataValue, { type: "array" }>["values"], unknown[]>;

function isNumericArray(values: Extract<MetadataValue, { type: "array" }>["values"]): values is NumericArray {
  return !Array.isArray(values);
}

function describe(value: MetadataValue): string {
  if (value.type === "array") return `an array of ${value.elementType}`;
  return `${quotedText(String(value.value))} of type ${value.type}`;
}
