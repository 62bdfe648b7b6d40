// JSON Schema to rules of a grammar. One rule per list of schemas that hold together, so that recursion is a call.
// Objects are written in the order of their properties, further ones last; strings with a pattern in one spelling.
import { CharRules, type Spelling, stringExcept } from "./char-rules.ts";
import type { GrammarBuilder } from "./grammar.ts";
import { GrammarError } from "./grammar-error.ts";
import { addNumber } from "./number-grammar.ts";
import { addRegex } from "./regex-grammar.ts";
import { parseRegex, regexOf } from "./regex-parser.ts";
import { isObject, type Json, type JsonKind, joinPath, type Schemas } from "./schema-keywords.ts";
import { SchemaReader, type Shape } from "./schema-shapes.ts";

/** Most different places of a schema. */
export const MAX_PLACES = 10_000;
/** Deepest indentation: white space is bounded, so that no model can go on writing blanks. */
export const MAX_INDENT = 40;

/** Which values a rule covers and how: as JSON, only strings and those raw, or as JSON without strings. */
export type ValueMode = "json" | "raw-strings" | "no-strings";

/** Builder, characters and white space that the schemas of one grammar share. */
export interface GrammarParts {
  builder: GrammarBuilder;
  chars: CharRules;
  /** Nothing, a blank, or a new line and its indentation. */
  space: number;
}

/** Parts on a builder whose whole already is a rule. */
export function grammarParts(builder: GrammarBuilder): GrammarParts {
  const blank = builder.ruleOf((start) => builder.anyOf(start, " \t"));
  const space = builder.ruleOf((start) => {
    const end = builder.text(start, " ");
    builder.jump(start, end);
    return builder.call(builder.text(start, "\n"), blank, 0, MAX_INDENT, end);
  });
  return { builder, chars: new CharRules(builder), space };
}

/** Rules for the schemas of one document. */
export class SchemaGrammar {
  readonly reader: SchemaReader;
  readonly #parts: GrammarParts;
  readonly #rules = new Map<string, number>();
  readonly #ids = new Map<Json, number>();
  readonly #waiting: { schemas: Schemas; mode: ValueMode; start: number }[] = [];

  /** `isLenient` leaves out what is not supported. */
  constructor(parts: GrammarParts, root: Json, isLenient = false) {
    this.#parts = parts;
    this.reader = new SchemaReader(root, isLenient);
  }

  /** The rule for values that all `schemas` allow. It is complete once `finish` has run. */
  rule(schemas: Schemas, mode: ValueMode): number {
    const ids = schemas.filter(({ schema }) => schema !== true).map(({ schema }) => this.#id(schema));
    const key = `${mode}:${[...new Set(ids)].sort((a, b) => a - b).join(",")}`;
    const known = this.#rules.get(key);
    if (known !== undefined) return known;
    if (this.#rules.size >= MAX_PLACES) {
      throw new GrammarError(schemas[0]?.path ?? "", `the schema has more than ${MAX_PLACES} places`);
    }
    const { rule, start } = this.#parts.builder.rule();
    this.#rules.set(key, rule);
    this.#waiting.push({ schemas, mode, start });
    return rule;
  }

  /** Writes all rules asked for, and those that they need. Throws `GrammarError` with the path of what is wrong. */
  finish(): void {
    for (let next = this.#waiting.pop(); next !== undefined; next = this.#waiting.pop()) {
      const end = this.#parts.builder.state();
      this.#parts.builder.final(end);
      for (const shape of this.reader.shapes(next.schemas)) this.#shape(shape, next.mode, next.start, end);
    }
  }

  #id(schema: Json): number {
    const id = this.#ids.get(schema) ?? this.#ids.size;
    this.#ids.set(schema, id);
    return id;
  }

  #shape(shape: Shape, mode: ValueMode, from: number, to: number): void {
    const { builder } = this.#parts;
    if (shape.values !== undefined) {
      for (const value of shape.values.values()) {
        if (!allowsValue(shape, value)) continue;
        const isString = typeof value === "string";
        if (mode === "raw-strings" && isString) builder.text(from, value, to);
        else if (mode === "json" || (mode === "no-strings" && !isString)) this.#value(value, from, to);
      }
      return;
    }
    const has = (kind: JsonKind) => shape.kinds.has(kind);
    if (has("string") && mode !== "no-strings")
      this.#string(shape, mode === "json" ? "json" : "raw", from, to);
    if (mode === "raw-strings") return;
    if (has("null")) builder.text(from, "null", to);
    if (has("boolean")) {
      builder.text(from, "true", to);
      builder.text(from, "false", to);
    }
    if (has("number") || has("integer")) this.#number(shape, from, to);
    if (has("array")) this.#array(shape, from, to);
    if (has("object")) this.#object(shape, from, to);
  }

  #number(shape: Shape, from: number, to: number): void {
    const { builder, chars } = this.#parts;
    const { low, high } = shape;
    const bounds = { isInteger: !shape.kinds.has("number"), low, high };
    builder.jump(
      this.#named(shape, "minimum", () => addNumber(builder, chars, bounds, from)),
      to,
    );
  }

  #string(shape: Shape, spelling: Spelling, from: number, to: number): void {
    const { builder, chars } = this.#parts;
    const { pattern, minLength: min, maxLength: max } = shape;
    if (min > max) return;
    const isQuoted = spelling === "json";
    const start = isQuoted ? builder.text(from, '"') : builder.jump(from, builder.state());
    const end =
      pattern === undefined
        ? builder.call(start, chars.any(spelling), min, max)
        : this.#named(shape, "pattern", () =>
            addRegex(builder, chars, parseRegex(pattern), { from: start, spelling, length: { min, max } }),
          );
    builder.text(end, isQuoted ? '"' : "", to);
  }

  #named(shape: Shape, keyword: string, make: () => number): number {
    try {
      return make();
    } catch (error) {
      if (!(error instanceof GrammarError) || error.path !== "") throw error;
      throw new GrammarError(joinPath(shape.path, keyword), error.reason);
    }
  }

  #array(shape: Shape, from: number, to: number): void {
    const { builder, space } = this.#parts;
    const { prefix, items, minItems: min, maxItems: max } = shape;
    if (min > max) return;
    const comma = (at: number) => builder.call(builder.text(at, ","), space);
    const close = (at: number) => builder.text(at, "]", to);
    let at = builder.call(builder.text(from, "["), space);
    const singles = Math.max(prefix.length, 1);
    for (let index = 0; index < singles; index++) {
      if (index >= min) close(index === 0 ? at : builder.call(at, space));
      if (index >= max) return;
      if (index > 0) at = comma(at);
      at = builder.call(at, this.rule(prefix[index] ?? items, "json"));
    }
    const item = this.rule(items, "json");
    const more = builder.ruleOf((start) => builder.call(comma(start), item));
    close(builder.call(builder.call(at, more, Math.max(0, min - singles), max - singles), space));
  }

  // Two states before each property: nothing written so far, or something that a comma must follow.
  #object(shape: Shape, from: number, to: number): void {
    const { builder, chars, space } = this.#parts;
    const colon = (at: number) => builder.call(builder.text(at, ":"), space);
    const comma = (at: number, next: number) => builder.call(builder.text(at, ","), space, 1, 1, next);
    let fresh = builder.call(builder.text(from, "{"), space);
    let after = builder.state();
    for (const [name, schemas] of shape.properties) {
      const key = builder.jump(fresh, builder.state());
      comma(after, key);
      const value = colon(builder.text(key, JSON.stringify(name)));
      const written = builder.call(value, this.rule(schemas, "json"));
      const isRequired = shape.required.has(name);
      if (!isRequired) builder.jump(after, written);
      fresh = isRequired ? builder.state() : builder.jump(fresh, builder.state());
      after = written;
    }
    const key = builder.jump(fresh, builder.state());
    comma(after, key);
    const value = colon(stringExcept(builder, chars, shape.properties.keys(), key));
    builder.call(value, this.rule(shape.additional, "json"), 1, 1, after);
    builder.text(fresh, "}", to);
    builder.text(builder.call(after, space), "}", to);
  }

  /** Exactly `value`, with white space where it may be. */
  #value(value: Json, from: number, to: number): void {
    const { builder, space } = this.#parts;
    if (!Array.isArray(value) && !isObject(value)) {
      builder.text(from, JSON.stringify(value), to);
      return;
    }
    const [open, close] = Array.isArray(value) ? "[]" : "{}";
    let at = builder.call(builder.text(from, open), space);
    Object.entries(value).forEach(([key, item], index) => {
      if (index > 0) at = builder.call(builder.text(at, ","), space);
      if (!Array.isArray(value)) at = builder.call(builder.text(at, `${JSON.stringify(key)}:`), space);
      const end = builder.state();
      this.#value(item, at, end);
      at = end;
    });
    builder.text(Object.keys(value).length === 0 ? at : builder.call(at, space), close, to);
  }
}

/** Whether a value of an enum meets what else the shape says. Throws `GrammarError` where that is not checked. */
function allowsValue(shape: Shape, value: Json): boolean {
  if (value === null) return shape.kinds.has("null");
  if (typeof value === "boolean") return shape.kinds.has("boolean");
  if (typeof value === "number") {
    const { low, high } = shape;
    const isHigh = low === undefined || value > low.value || (value === low.value && !low.isOpen);
    const isLow = high === undefined || value < high.value || (value === high.value && !high.isOpen);
    return (
      isHigh &&
      isLow &&
      (shape.kinds.has("number") || (shape.kinds.has("integer") && Number.isInteger(value)))
    );
  }
  if (typeof value === "string") {
    const length = [...value].length;
    const isWithin = length >= shape.minLength && length <= shape.maxLength;
    const { pattern } = shape;
    return (
      shape.kinds.has("string") &&
      isWithin &&
      (pattern === undefined || regexOf(pattern)?.test(value) === true)
    );
  }
  const isArray = Array.isArray(value);
  if (!shape.kinds.has(isArray ? "array" : "object")) return false;
  const isPlain = isArray
    ? shape.prefix.length === 0 &&
      shape.items.length === 0 &&
      shape.minItems === 0 &&
      shape.maxItems === Infinity
    : shape.properties.size === 0 && shape.required.size === 0 && shape.additional.length === 0;
  if (!isPlain) {
    const reason = "arrays and objects in an enum are not supported beside keywords for their parts";
    throw new GrammarError(joinPath(shape.path, "enum"), reason);
  }
  return true;
}
