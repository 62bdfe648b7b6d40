// JSON as the official encoder writes it: Python's json.dumps with its default separators and non-ASCII kept. The
// model was trained on these bytes, so `{"a": 1.0}` must not become `{"a":1}`. The parser keeps what JavaScript's own
// loses: the spelling of numbers and the order of keys that look like integers.

import { spellingOf } from "./number-spelling.ts";

/** A number that remembers its spelling, made by `parseJson`. */
export class JsonNumber {
  readonly lexeme: string;

  constructor(lexeme: string) {
    this.lexeme = lexeme;
  }
}

/** A JSON value: plain JavaScript data, or what `parseJson` makes (Maps and `JsonNumber`). */
export type JsonValue =
  | null
  | boolean
  | string
  | number
  | bigint
  | JsonNumber
  | readonly JsonValue[]
  | ReadonlyMap<string, JsonValue>
  | { readonly [key: string]: JsonValue | undefined };

/** Deepest nesting read or written; Python's own limit is of that order, and it protects the stack. */
export const MAX_JSON_DEPTH = 512;

/**
 * Text of `value` like Python's `json.dumps(value, ensure_ascii=False)`: `, ` and `: ` between items, key order kept,
 * members that are undefined left out. Throws a RangeError for too deep nesting or a number that is not finite, a
 * TypeError for what is no JSON.
 */
export function pythonJson(value: JsonValue, depth = 0): string {
  if (depth > MAX_JSON_DEPTH) throw new RangeError(`JSON is nested deeper than ${MAX_JSON_DEPTH} levels`);
  if (value === null) return "null";
  switch (typeof value) {
    case "string":
      return JSON.stringify(value);
    case "boolean":
    case "bigint":
      return String(value);
    case "number":
      return Number.isSafeInteger(value) && !Object.is(value, -0) ? String(value) : pythonFloat(value);
    case "object":
      break;
    default:
      throw new TypeError(`expected a JSON value, got ${typeof value}`);
  }
  if (value instanceof JsonNumber) return pythonNumber(value.lexeme);
  if (Array.isArray(value)) {
    const items = value.map((item, index) => pythonJson(spelled(value, index, item), depth + 1));
    return `[${items.join(", ")}]`;
  }
  const members = jsonMembers(value as { readonly [key: string]: JsonValue | undefined });
  return `{${members.map(([key, item]) => `${JSON.stringify(key)}: ${pythonJson(item, depth + 1)}`).join(", ")}}`;
}

/** Members of a plain object or Map in order, without undefined ones; numbers keep a spelling that is known. */
export function jsonMembers(
  value: { readonly [key: string]: JsonValue | undefined } | ReadonlyMap<string, JsonValue>,
): [string, JsonValue][] {
  if (value instanceof Map) return [...value].filter(([, item]) => item !== undefined);
  const entries = Object.entries(value as { readonly [key: string]: JsonValue | undefined });
  return entries.flatMap(([key, item]): [string, JsonValue][] =>
    item === undefined ? [] : [[key, spelled(value, key, item)]],
  );
}

function spelled(holder: object, key: string | number, value: JsonValue): JsonValue {
  const lexeme = typeof value === "number" ? spellingOf(holder, key) : undefined;
  return lexeme === undefined ? value : new JsonNumber(lexeme);
}

/** Whether `value` is a JSON object: a plain object or a Map. */
export function isJsonObject(
  value: unknown,
): value is { readonly [key: string]: JsonValue | undefined } | ReadonlyMap<string, JsonValue> {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof JsonNumber)
  );
}

/** `repr` of a Python float: shortest digits, fixed notation from 1e-4 up to 1e16, else an exponent of two digits. */
export function pythonFloat(value: number): string {
  if (!Number.isFinite(value)) throw new RangeError(`JSON has no ${value}`);
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const [mantissa, exponentText] = value.toExponential().split("e");
  const exponent = Number(exponentText);
  const sign = value < 0 ? "-" : "";
  const digits = mantissa.replace("-", "").replace(".", "");
  if (exponent < -4 || exponent >= 16) {
    const fraction = digits.length > 1 ? `.${digits.slice(1)}` : "";
    const power = String(Math.abs(exponent)).padStart(2, "0");
    return `${sign}${digits[0]}${fraction}e${exponent < 0 ? "-" : "+"}${power}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${sign}${whole}.${digits.slice(exponent + 1) || "0"}`;
}

function pythonNumber(lexeme: string): string {
  if (/^-?\d+$/.test(lexeme)) return lexeme === "-0" ? "0" : lexeme;
  return pythonFloat(Number(lexeme));
}

/**
 * Parses strict JSON into Maps, arrays and `JsonNumber`s. Of members with the same key the last value wins, in the
 * first one's place, as in Python. Throws a SyntaxError with the character offset, or a RangeError if too deep.
 */
export function parseJson(text: string): JsonValue {
  const reader = new JsonReader(text);
  const value = reader.value(0);
  reader.expectEnd();
  return value;
}

class JsonReader {
  private readonly text: string;
  private at = 0;

  constructor(text: string) {
    this.text = text;
  }

  value(depth: number): JsonValue {
    if (depth > MAX_JSON_DEPTH) throw new RangeError(`JSON is nested deeper than ${MAX_JSON_DEPTH} levels`);
    this.skipSpace();
    switch (this.text[this.at]) {
      case "{":
        return this.object(depth);
      case "[":
        return this.array(depth);
      case '"':
        return this.string();
      case "t":
        return this.literal("true", true);
      case "f":
        return this.literal("false", false);
      case "n":
        return this.literal("null", null);
      default:
        return new JsonNumber(this.match(/-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y, "a value"));
    }
  }

  expectEnd(): void {
    this.skipSpace();
    if (this.at < this.text.length) this.fail("the end");
  }

  private object(depth: number): JsonValue {
    const members = new Map<string, JsonValue>();
    this.at++;
    this.skipSpace();
    if (this.take("}")) return members;
    do {
      this.skipSpace();
      const key = this.string();
      this.skipSpace();
      if (!this.take(":")) this.fail("a colon");
      members.set(key, this.value(depth + 1));
      this.skipSpace();
    } while (this.take(","));
    if (!this.take("}")) this.fail("a comma or closing brace");
    return members;
  }

  private array(depth: number): JsonValue {
    const items: JsonValue[] = [];
    this.at++;
    this.skipSpace();
    if (this.take("]")) return items;
    do {
      items.push(this.value(depth + 1));
      this.skipSpace();
    } while (this.take(","));
    if (!this.take("]")) this.fail("a comma or closing bracket");
    return items;
  }

  private string(): string {
    const start = this.at;
    if (!this.take('"')) this.fail("a string");
    while (this.at < this.text.length && this.text[this.at] !== '"')
      this.at += this.text[this.at] === "\\" ? 2 : 1;
    if (!this.take('"')) this.fail("a closing quote");
    try {
      return JSON.parse(this.text.slice(start, this.at));
    } catch {
      this.at = start;
      return this.fail("a valid string");
    }
  }

  private literal<Value>(word: string, value: Value): Value {
    if (!this.text.startsWith(word, this.at)) this.fail("a value");
    this.at += word.length;
    return value;
  }

  private match(pattern: RegExp, what: string): string {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found === null) return this.fail(what);
    this.at += found[0].length;
    return found[0];
  }

  private take(char: string): boolean {
    if (this.text[this.at] !== char) return false;
    this.at++;
    return true;
  }

  private skipSpace(): void {
    while (this.at < this.text.length && " \t\n\r".includes(this.text[this.at])) this.at++;
  }

  private fail(expected: string): never {
    throw new SyntaxError(`expected ${expected} at character ${this.at} of the JSON text`);
  }
}
