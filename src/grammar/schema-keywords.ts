// The keywords of one schema, read and checked: types, bounds, lists of schemas with their paths.
import { GrammarError } from "./grammar-error.ts";
import type { NumberBound } from "./number-grammar.ts";

/** A JSON value as `JSON.parse` gives it. */
export type Json = unknown;
/** The types of JSON values. */
export type JsonKind = "null" | "boolean" | "integer" | "number" | "string" | "array" | "object";

/** A schema and where it stands. */
export interface PlacedSchema {
  schema: Json;
  path: string;
}

/** Schemas that all hold; none means that anything does. */
export type Schemas = readonly PlacedSchema[];

/** An object of a schema. */
export type JsonObject = { readonly [key: string]: Json };

/** All types. */
export const KINDS: readonly JsonKind[] = [
  "null",
  "boolean",
  "integer",
  "number",
  "string",
  "array",
  "object",
];
/** Whether `value` is an object and no array. */
export function isObject(value: Json): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** `path` and a key of it. */
export function joinPath(path: string, key: string | number): string {
  if (typeof key === "number") return `${path}[${key}]`;
  const step = /^[\w$-]+$/.test(key) ? key : JSON.stringify(key);
  return path === "" ? step : `${path}.${step}`;
}

/** Reads the keywords of one schema, checked. */
export class LeafReader {
  readonly path: string;
  readonly #leaf: JsonObject;

  constructor(leaf: JsonObject, path: string) {
    this.#leaf = leaf;
    this.path = path;
  }

  kinds(): ReadonlySet<JsonKind> {
    const { type } = this.#leaf;
    if (type === undefined) return new Set(KINDS);
    const types = Array.isArray(type) ? type : [type];
    const wrong = types.find((name) => !KINDS.includes(name));
    if (wrong !== undefined || types.length === 0)
      this.#fail("type", `one or several of ${KINDS.join(", ")}`);
    return new Set(types);
  }

  values(): ReadonlyMap<string, Json> | undefined {
    const { const: constant, enum: values } = this.#leaf;
    const list = (of: readonly Json[]) => new Map(of.map((value) => [JSON.stringify(value), value]));
    if (values !== undefined && !Array.isArray(values)) this.#fail("enum", "an array of values");
    const allowed = values === undefined ? undefined : list(values);
    return constant === undefined ? allowed : intersectValues(allowed, list([constant]));
  }

  bound(keyword: string, openKeyword: string): NumberBound | undefined {
    const value = this.#number(keyword);
    const open = this.#leaf[openKeyword];
    // In draft 4 it is a flag beside the bound.
    if (typeof open === "boolean") return value === undefined ? undefined : { value, isOpen: open };
    const openValue = this.#number(openKeyword);
    const isGreater = keyword === "minimum";
    return tighter(
      value === undefined ? undefined : { value, isOpen: false },
      openValue === undefined ? undefined : { value: openValue, isOpen: true },
      (a, b) => (isGreater ? a > b : a < b),
    );
  }

  count(keyword: string): number | undefined {
    const value = this.#number(keyword);
    if (value === undefined || (Number.isInteger(value) && value >= 0 && value < 2 ** 31)) return value;
    return this.#fail(keyword, "a whole number from 0 on");
  }

  text(keyword: string): string | undefined {
    const value = this.#leaf[keyword];
    if (value === undefined || typeof value === "string") return value;
    return this.#fail(keyword, "a text");
  }

  required(): string[] {
    const { required } = this.#leaf;
    // As a boolean it is a form of old drafts, on a property.
    if (required === undefined || typeof required === "boolean") return [];
    if (!Array.isArray(required) || required.some((name) => typeof name !== "string"))
      this.#fail("required", "an array of names");
    return required as string[];
  }

  object(): { properties: Map<string, Schemas>; additional: Schemas | undefined } {
    const { properties = {}, additionalProperties: additional } = this.#leaf;
    if (!isObject(properties)) this.#fail("properties", "an object of schemas");
    const place = joinPath(this.path, "properties");
    const entries = Object.entries(properties as JsonObject).map(([name, schema]): [string, Schemas] => [
      name,
      [{ schema, path: joinPath(place, name) }],
    ]);
    return {
      properties: new Map(entries),
      additional: additional === undefined ? undefined : this.#one("additionalProperties", additional),
    };
  }

  array(): { prefix: Schemas[]; items: Schemas } {
    const { prefixItems, items, additionalItems } = this.#leaf;
    // Drafts before 2020 say `items` for the first ones and `additionalItems` for the rest.
    const isOld = Array.isArray(items);
    const first = isOld ? items : prefixItems;
    const rest = isOld ? additionalItems : items;
    if (first !== undefined && !Array.isArray(first)) this.#fail("prefixItems", "an array of schemas");
    const place = joinPath(this.path, isOld ? "items" : "prefixItems");
    return {
      prefix: ((first ?? []) as Json[]).map((schema, at) => [{ schema, path: joinPath(place, at) }]),
      items: rest === undefined ? [] : this.#one(isOld ? "additionalItems" : "items", rest),
    };
  }

  #one(keyword: string, schema: Json): Schemas {
    return [{ schema, path: joinPath(this.path, keyword) }];
  }

  #number(keyword: string): number | undefined {
    const value = this.#leaf[keyword];
    if (value === undefined || (typeof value === "number" && Number.isFinite(value))) return value;
    return this.#fail(keyword, "a number");
  }

  #fail(keyword: string, expected: string): never {
    const got = textOf(this.#leaf[keyword]);
    throw new GrammarError(joinPath(this.path, keyword), `expected ${expected}, got ${got}`);
  }
}

/** Values in both; undefined stands for all. */
export function intersectValues(
  a: ReadonlyMap<string, Json> | undefined,
  b: ReadonlyMap<string, Json> | undefined,
): ReadonlyMap<string, Json> | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return new Map([...a].filter(([text]) => b.has(text)));
}

/** The tighter of two bounds. */
export function tighter(
  a: NumberBound | undefined,
  b: NumberBound | undefined,
  isTighter: (a: number, b: number) => boolean,
): NumberBound | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  if (a.value === b.value) return { value: a.value, isOpen: a.isOpen || b.isOpen };
  return isTighter(a.value, b.value) ? a : b;
}

/** A value as messages show it. */
export function textOf(value: Json): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
