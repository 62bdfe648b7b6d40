// Turns the text of a flag into a value, or says which values are accepted. The names of flags are added by the
// argument parser.
import { InvalidArgumentError } from "commander";
import { UsageError } from "../core/errors.ts";
import { MAX_SEED } from "../core/random.ts";
import { describeRange, inRange, type ParamRange } from "../session/sampling-params.ts";

/** Numbers as people write them: no hexadecimal, no blanks, no empty text. */
const NUMBER = /^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$/;

/** A parser for numbers within a range. */
export function numberIn(range: ParamRange): (text: string) => number {
  return (text) => {
    const value = NUMBER.test(text) ? Number(text) : Number.NaN;
    if (!inRange(value, range)) throw new InvalidArgumentError(`Expected ${describeRange(range)}.`);
    return value;
  };
}

/** A parser for whole numbers from `min` to `max`. */
export function integerIn(min: number, max: number): (text: string) => number {
  return numberIn({ min, max, integer: true });
}

/** An unsigned 64-bit seed. */
export function parseSeed(text: string): bigint {
  if (!/^\d{1,20}$/.test(text) || BigInt(text) > MAX_SEED) {
    throw new InvalidArgumentError("Expected an integer in 0..2^64-1.");
  }
  return BigInt(text);
}

/** Collects `ID=VALUE` pairs of a repeatable flag. */
export function collectBias(text: string, previous: Record<number, number> = {}): Record<number, number> {
  const match = /^(\d{1,9})=(.+)$/.exec(text);
  if (match === null || !NUMBER.test(match[2])) {
    throw new InvalidArgumentError("Expected TOKEN_ID=VALUE, for example 123=-100.");
  }
  return { ...previous, [Number(match[1])]: Number(match[2]) };
}

/** Collects the texts of a repeatable flag. */
export function collectText(text: string, previous: string[] = []): string[] {
  if (text === "") throw new InvalidArgumentError("Expected a text of at least one character.");
  return [...previous, text];
}

const BYTE_UNITS: Readonly<Record<string, number>> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KIB: 1024,
  MIB: 1024 ** 2,
  GIB: 1024 ** 3,
  TIB: 1024 ** 4,
};

/** A size with its unit: `119.7GiB`, `80 GB` (10^9), `512MiB`. Bytes, rounded down. */
export function parseBytes(text: string): number {
  const match = /^(\d{1,15}(?:\.\d{1,9})?) ?([KMGT]?i?B)$/i.exec(text.trim());
  const bytes =
    match === null ? Number.NaN : Math.floor(Number(match[1]) * BYTE_UNITS[match[2].toUpperCase()]);
  if (!Number.isSafeInteger(bytes) || bytes < 1) {
    throw new InvalidArgumentError("Expected a size with a unit, for example 119.7GiB or 128GB.");
  }
  return bytes;
}

/** Refuses a context longer than the model's, where that is known. Throws `usage` naming the flag. */
export function checkTrainedCtx(
  trainedTokens: number | undefined,
  ctxTokens: number | undefined,
  name = "--ctx",
): void {
  if (ctxTokens === undefined || trainedTokens === undefined || ctxTokens <= trainedTokens) return;
  throw new UsageError(`${name}: this model was trained for 1..${trainedTokens} tokens, got ${ctxTokens}`);
}
