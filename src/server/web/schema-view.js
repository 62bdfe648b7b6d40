// A JSON schema as a list that can be unfolded: name, type, whether it is required, what it allows.
import { el } from "./dom.js";

/** @typedef {Record<string, any>} Schema */

/** Deeper objects are named but not unfolded: schemas are data, and data may go round in circles. */
const MAX_DEPTH = 8;

/**
 * The fields of an object, required ones first.
 * @param {Schema} schema
 * @param {number} [depth]
 * @returns {HTMLElement}
 */
export function schemaFields(schema, depth = 0) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties ?? {}).sort(
    ([a], [b]) => Number(required.has(b)) - Number(required.has(a)),
  );
  return el(
    "ul",
    { class: "schema" },
    ...fields.map(([name, field]) => fieldItem(name, field, required.has(name), depth)),
  );
}

/**
 * @param {string} name
 * @param {Schema} schema
 * @param {boolean} isRequired
 * @param {number} depth
 */
function fieldItem(name, schema, isRequired, depth) {
  const head = [
    el("code", {}, name),
    el("span", { class: "type" }, typeText(schema)),
    isRequired && el("span", { class: "required" }, "required"),
  ];
  const limits = limitText(schema);
  const about = [schema.description, limits].filter(Boolean).join(" ");
  const inner = depth < MAX_DEPTH ? innerObject(schema) : undefined;
  if (inner === undefined) {
    return el(
      "li",
      {},
      el("div", { class: "field" }, ...head),
      about !== "" && el("p", { class: "hint" }, about),
    );
  }
  const fields = schemaFields(inner, depth + 1);
  const unfold = el("details", {}, el("summary", { class: "field" }, ...head), fields);
  return el("li", {}, unfold, about !== "" && el("p", { class: "hint" }, about));
}

/**
 * The object with fields that a schema is, is a list of, or may be.
 * @param {Schema} schema
 * @returns {Schema | undefined}
 */
function innerObject(schema) {
  if (Object.keys(schema.properties ?? {}).length > 0) return schema;
  if (schema.items) return innerObject(schema.items);
  for (const choice of schema.anyOf ?? schema.oneOf ?? []) {
    const inner = innerObject(choice);
    if (inner !== undefined) return inner;
  }
  return undefined;
}

/**
 * `integer`, `list of object`, `text or list of object`. Null is left out: every optional field takes it.
 * @param {Schema} schema
 * @returns {string}
 */
export function typeText(schema) {
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices)
    return [...new Set(choices.map(typeText).filter((/** @type {string} */ type) => type !== "null"))].join(
      " or ",
    );
  const types = [schema.type ?? "anything"].flat().filter((type) => type !== "null");
  if (types.length === 0) return "null";
  return types
    .map((type) => {
      if (type === "array") return `list of ${typeText(schema.items ?? {})}`;
      return type === "string" ? "text" : type;
    })
    .join(" or ");
}

/** @param {Schema} schema */
function limitText(schema) {
  const { minimum, maximum, minItems, maxItems, minLength } = schema;
  /** @type {string[]} */
  const limits = [];
  const values = (schema.enum ?? (schema.const === undefined ? [] : [schema.const])).filter(
    (/** @type {unknown} */ value) => value !== null,
  );
  if (values.length > 0)
    limits.push(`One of ${values.map((/** @type {unknown} */ value) => JSON.stringify(value)).join(", ")}.`);
  const [low, high] = [minimum ?? minItems, maximum ?? maxItems];
  const unit = minItems !== undefined || maxItems !== undefined ? " entries" : "";
  // Bounds of the number format itself say nothing.
  const hasHigh = high !== undefined && high < Number.MAX_SAFE_INTEGER;
  const hasLow = low !== undefined && low > Number.MIN_SAFE_INTEGER;
  const text = (/** @type {number} */ value) => value.toLocaleString("en-US");
  if (hasLow && hasHigh) limits.push(`${text(low)} to ${text(high)}${unit}.`);
  else if (hasLow) limits.push(`At least ${text(low)}${unit}.`);
  else if (hasHigh) limits.push(`At most ${text(high)}${unit}.`);
  if (minLength > 0) limits.push("Not empty.");
  return limits.join(" ");
}
