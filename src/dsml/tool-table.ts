// What the tools' JSON Schemas say that matters for reading calls: names, required parameters, types of parameters.
import type { ToolDefinition } from "../template/conversation.ts";
import { isJsonObject, JsonNumber, type JsonValue, jsonMembers } from "../template/json-python.ts";

/** A JSON type as schemas name it. */
export type JsonType = "string" | "integer" | "number" | "boolean" | "null" | "array" | "object";

/** One tool. */
export interface ToolSchema {
  name: string;
  required: readonly string[];
  /** The types that a parameter may have, or undefined where the schema does not say. */
  typesOf(parameter: string): ReadonlySet<JsonType> | undefined;
}

const JSON_TYPES: readonly string[] = ["string", "integer", "number", "boolean", "null", "array", "object"];
/** Deepest chain of references and alternatives followed; deeper ones count as unknown. */
const MAX_SCHEMA_DEPTH = 8;

/**
 * The tools by name; of two with the same name the last wins. Definitions without a name are left out: the template
 * refuses them.
 */
export function toolTable(tools: readonly ToolDefinition[]): ReadonlyMap<string, ToolSchema> {
  const table = new Map<string, ToolSchema>();
  for (const tool of tools) {
    const wrapped = member(tool, "function");
    const inner: JsonValue = isJsonObject(wrapped) ? wrapped : tool;
    const name = member(inner, "name");
    if (typeof name !== "string") continue;
    // `input_schema` is what one of the APIs calls it.
    const schema = member(inner, "parameters") ?? member(inner, "input_schema");
    table.set(name, toolSchema(name, schema));
  }
  return table;
}

function toolSchema(name: string, schema: JsonValue | undefined): ToolSchema {
  const required = member(schema, "required");
  const properties = member(schema, "properties");
  return {
    name,
    required: Array.isArray(required) ? required.filter((key) => typeof key === "string") : [],
    typesOf: (parameter) => schemaTypes(member(properties, parameter), schema, 0),
  };
}

function schemaTypes(
  schema: JsonValue | undefined,
  root: JsonValue | undefined,
  depth: number,
): ReadonlySet<JsonType> | undefined {
  if (depth > MAX_SCHEMA_DEPTH || !isJsonObject(schema)) return undefined;
  const type = member(schema, "type");
  const named = (Array.isArray(type) ? type : [type]).filter(isTypeName);
  if (named.length > 0) return new Set(named);
  const reference = member(schema, "$ref");
  if (typeof reference === "string") return schemaTypes(resolve(reference, root), root, depth + 1);
  const constant = member(schema, "const");
  if (constant !== undefined) return new Set([typeOfValue(constant)]);
  const values = member(schema, "enum");
  if (Array.isArray(values) && values.length > 0) return new Set(values.map(typeOfValue));
  for (const key of ["anyOf", "oneOf"]) {
    const options = member(schema, key);
    if (!Array.isArray(options) || options.length === 0) continue;
    const sets = options.map((option) => schemaTypes(option, root, depth + 1));
    if (sets.some((set) => set === undefined)) return undefined;
    return new Set(sets.flatMap((set) => [...set!]));
  }
  return undefined;
}

function resolve(reference: string, root: JsonValue | undefined): JsonValue | undefined {
  if (!reference.startsWith("#/")) return undefined;
  let schema = root;
  for (const part of reference.slice(2).split("/"))
    schema = member(schema, part.replaceAll("~1", "/").replaceAll("~0", "~"));
  return schema;
}

function isTypeName(value: unknown): value is JsonType {
  return typeof value === "string" && JSON_TYPES.includes(value);
}

/** The narrowest JSON type of a value: whole numbers are integers, however they are spelled. */
export function typeOfValue(value: JsonValue): JsonType {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (value instanceof JsonNumber) return typeOfNumber(Number(value.lexeme));
  switch (typeof value) {
    case "string":
    case "boolean":
      return typeof value as JsonType;
    case "number":
      return typeOfNumber(value);
    case "bigint":
      return "integer";
    default:
      return "object";
  }
}

function typeOfNumber(value: number): JsonType {
  return Number.isInteger(value) ? "integer" : "number";
}

/** Whether a value of type `type` is one of `types`; an integer is a number too. */
export function allows(types: ReadonlySet<JsonType>, type: JsonType): boolean {
  return types.has(type) || (type === "integer" && types.has("number"));
}

function member(value: JsonValue | undefined, key: string): JsonValue | undefined {
  if (!isJsonObject(value)) return undefined;
  return value instanceof Map ? value.get(key) : new Map(jsonMembers(value)).get(key);
}
