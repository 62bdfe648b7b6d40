// JSON Schema as a choice of simple shapes: references followed, allOf merged, anyOf and oneOf spread out. What would
// change which values are valid and is not supported is refused with its path.
import { GrammarError } from "./grammar-error.ts";
import type { NumberBound } from "./number-grammar.ts";
import {
  intersectValues,
  isObject,
  type Json,
  type JsonKind,
  type JsonObject,
  joinPath,
  KINDS,
  LeafReader,
  type PlacedSchema,
  type Schemas,
  textOf,
  tighter,
} from "./schema-keywords.ts";

/** Constraints without references or choices. */
export interface Shape {
  path: string;
  kinds: ReadonlySet<JsonKind>;
  /** The only values, as their JSON texts by `JSON.stringify`. */
  values: ReadonlyMap<string, Json> | undefined;
  low: NumberBound | undefined;
  high: NumberBound | undefined;
  minLength: number;
  maxLength: number;
  pattern: string | undefined;
  properties: ReadonlyMap<string, Schemas>;
  required: ReadonlySet<string>;
  additional: Schemas;
  /** Whether a schema says what further properties may be. */
  namesAdditional: boolean;
  prefix: readonly Schemas[];
  items: Schemas;
  minItems: number;
  maxItems: number;
}

/** Most alternatives of one place, spread out. */
export const MAX_ALTERNATIVES = 1024;
/** Most alternatives and properties of all places together, spread out. */
const MAX_PARTS = 500_000;
/** Longest chain of references and choices at one place. */
const MAX_CHAIN = 64;
/** A schema that nothing matches. */
export const NEVER: PlacedSchema = { schema: false, path: "" };

/** Keywords that change what is valid and that a grammar cannot say, or not without growing beyond use. */
const UNSUPPORTED: ReadonlySet<string> = new Set([
  ...["not", "if", "dependentRequired", "dependentSchemas", "dependencies", "patternProperties"],
  ...["contains", "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems"],
  ...["minProperties", "maxProperties", "multipleOf", "$dynamicRef", "$recursiveRef"],
]);

/** Reads the schemas of one document. */
export class SchemaReader {
  readonly #root: Json;
  /** Leaves out what is not supported instead of refusing it. */
  readonly #isLenient: boolean;
  #partCount = 0;

  constructor(root: Json, isLenient = false) {
    this.#root = root;
    this.#isLenient = isLenient;
  }

  /** The shapes of which a value must have one. Throws `GrammarError`. */
  shapes(schemas: Schemas): Shape[] {
    let alternatives: Schemas[] = [[]];
    for (const placed of schemas) alternatives = cross(alternatives, this.#spread(placed, []), placed.path);
    const path = schemas[0]?.path ?? "";
    return alternatives.map((leaves) => {
      const shape = mergeLeaves(path, leaves, (leaf) => this.#checkLeaf(leaf));
      this.#partCount += leaves.length + shape.properties.size + shape.prefix.length;
      if (this.#partCount > MAX_PARTS) {
        throw new GrammarError(path, `the schema has more than ${MAX_PARTS} alternatives and properties`);
      }
      return shape;
    });
  }

  /** Alternatives, each a list of schemas whose own keywords all hold. */
  #spread(placed: PlacedSchema, chain: readonly Json[]): Schemas[] {
    const { schema, path } = placed;
    if (schema === true) return [[]];
    if (schema === false) return [];
    if (!isObject(schema)) {
      throw new GrammarError(path, `expected a schema (an object or boolean), got ${textOf(schema)}`);
    }
    if (chain.includes(schema)) throw new GrammarError(path, "the reference leads back to itself");
    if (chain.length > MAX_CHAIN) {
      throw new GrammarError(path, `references and choices are nested deeper than ${MAX_CHAIN}`);
    }
    const inner = [...chain, schema];
    let result: Schemas[] = [[placed]];
    if (schema.$ref !== undefined)
      result = cross(result, this.#spread(this.#resolve(schema.$ref, path), inner), path);
    for (const part of this.#list(placed, "allOf") ?? []) {
      result = cross(result, this.#spread(part, inner), part.path);
    }
    for (const keyword of ["anyOf", "oneOf"]) {
      const options = this.#list(placed, keyword);
      if (options === undefined) continue;
      result = cross(
        result,
        options.flatMap((option) => this.#spread(option, inner)),
        path,
      );
    }
    return result;
  }

  #list({ schema, path }: PlacedSchema, keyword: string): PlacedSchema[] | undefined {
    const value = (schema as JsonObject)[keyword];
    if (value === undefined) return undefined;
    const place = joinPath(path, keyword);
    if (!Array.isArray(value) || value.length === 0) {
      throw new GrammarError(place, `expected an array of schemas, got ${textOf(value)}`);
    }
    return value.map((part: Json, index) => ({ schema: part, path: joinPath(place, index) }));
  }

  #resolve(reference: Json, path: string): PlacedSchema {
    const place = joinPath(path, "$ref");
    if (typeof reference !== "string" || !/^#(\/|$)/.test(reference)) {
      const expected = "expected a reference within the schema, such as #/$defs/name";
      throw new GrammarError(place, `${expected}, got ${textOf(reference)}`);
    }
    let schema = this.#root;
    let target = "";
    for (const part of reference.split("/").slice(1)) {
      const key = decodeUri(part).replaceAll("~1", "/").replaceAll("~0", "~");
      const isKey = typeof schema === "object" && schema !== null && Object.hasOwn(schema, key);
      if (!isKey) throw new GrammarError(place, `${reference} points to nothing`);
      schema = (schema as JsonObject)[key];
      target = joinPath(target, key);
    }
    return { schema, path: target };
  }

  #checkLeaf({ schema, path }: PlacedSchema): JsonObject {
    const leaf = schema as JsonObject;
    if (this.#isLenient) return leaf;
    const names = leaf.propertyNames;
    const isPlain =
      isObject(names) && Object.keys(names).every((key) => key === "type") && names.type === "string";
    for (const key of Object.keys(leaf)) {
      const isHarmless = leaf[key] === undefined || (key === "propertyNames" && (isPlain || names === true));
      const isRefused =
        UNSUPPORTED.has(key) || key === "propertyNames" || (key === "uniqueItems" && leaf[key] === true);
      if (isRefused && !isHarmless && !(key === "multipleOf" && leaf.type === "integer" && leaf[key] === 1)) {
        throw new GrammarError(joinPath(path, key), `the keyword ${key} is not supported`);
      }
    }
    return leaf;
  }
}

function decodeUri(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function cross(a: readonly Schemas[], b: readonly Schemas[], path: string): Schemas[] {
  if (a.length * b.length > MAX_ALTERNATIVES) {
    throw new GrammarError(path, `there are more than ${MAX_ALTERNATIVES} alternatives`);
  }
  return a.flatMap((left) => b.map((right) => [...left, ...right]));
}

function mergeLeaves(path: string, leaves: Schemas, check: (leaf: PlacedSchema) => JsonObject): Shape {
  let shape: Shape = {
    path,
    kinds: new Set(KINDS),
    values: undefined,
    low: undefined,
    high: undefined,
    minLength: 0,
    maxLength: Number.POSITIVE_INFINITY,
    pattern: undefined,
    properties: new Map(),
    required: new Set(),
    additional: [],
    namesAdditional: false,
    prefix: [],
    items: [],
    minItems: 0,
    maxItems: Number.POSITIVE_INFINITY,
  };
  for (const leaf of leaves) shape = merge(shape, new LeafReader(check(leaf), leaf.path));
  return shape;
}

function merge(shape: Shape, leaf: LeafReader): Shape {
  const { properties, additional } = leaf.object();
  const names = new Set([...shape.properties.keys(), ...properties.keys(), ...leaf.required()]);
  const { prefix, items } = leaf.array();
  const prefixLength = Math.max(shape.prefix.length, prefix.length);
  const pattern = leaf.text("pattern");
  if (pattern !== undefined && shape.pattern !== undefined && pattern !== shape.pattern) {
    throw new GrammarError(joinPath(leaf.path, "pattern"), "two patterns for one string are not supported");
  }
  return {
    path: leaf.path,
    kinds: intersectKinds(shape.kinds, leaf.kinds()),
    values: intersectValues(shape.values, leaf.values()),
    low: tighter(shape.low, leaf.bound("minimum", "exclusiveMinimum"), (a, b) => a > b),
    high: tighter(shape.high, leaf.bound("maximum", "exclusiveMaximum"), (a, b) => a < b),
    minLength: Math.max(shape.minLength, leaf.count("minLength") ?? 0),
    maxLength: Math.min(shape.maxLength, leaf.count("maxLength") ?? Number.POSITIVE_INFINITY),
    pattern: pattern ?? shape.pattern,
    properties: new Map(
      [...names].map((name) => [
        name,
        [...(shape.properties.get(name) ?? shape.additional), ...(properties.get(name) ?? additional ?? [])],
      ]),
    ),
    required: new Set([...shape.required, ...leaf.required()]),
    additional: [...shape.additional, ...(additional ?? [])],
    namesAdditional: shape.namesAdditional || additional !== undefined,
    prefix: Array.from({ length: prefixLength }, (_, at) => [
      ...(shape.prefix[at] ?? shape.items),
      ...(prefix[at] ?? items),
    ]),
    items: [...shape.items, ...items],
    minItems: Math.max(shape.minItems, leaf.count("minItems") ?? 0),
    maxItems: Math.min(shape.maxItems, leaf.count("maxItems") ?? Number.POSITIVE_INFINITY),
  };
}

function intersectKinds(a: ReadonlySet<JsonKind>, b: ReadonlySet<JsonKind>): ReadonlySet<JsonKind> {
  const has = (set: ReadonlySet<JsonKind>, kind: JsonKind) =>
    set.has(kind) || (kind === "integer" && set.has("number"));
  return new Set(KINDS.filter((kind) => has(a, kind) && has(b, kind)));
}
