// From the sampled text of a parameter to JSON, with the schema as arbiter. The rules are in `valueToJson`.
import { type JsonValue, parseJson } from "../template/json-python.ts";
import { allows, type JsonType, typeOfValue } from "./tool-table.ts";

/** What the tag said: `string="true"`, `string="false"`, or nothing usable. */
export type StringFlag = boolean | undefined;

/** JSON text of a value, and what was done to it if it was not taken as it stands. */
export interface CoercedValue {
  json: string;
  note: string | undefined;
}

/**
 * Whether the value is a JSON string whatever its text, so that it can be streamed: it is marked as a string (or not
 * marked at all) and the schema allows a string or does not say.
 */
export function isPlainString(flag: StringFlag, types: ReadonlySet<JsonType> | undefined): boolean {
  return flag !== false && (types === undefined || types.has("string"));
}

/**
 * JSON text of a value that cannot be streamed (see `isPlainString`). The first rule that fits wins:
 *
 * 1. The text is JSON of a type that the schema allows (or the schema does not say): as it stands, numbers keep their
 *    spelling. So `string="true"` with `5` for an integer becomes `5`.
 * 2. The schema allows a boolean or null and the text is Python's `True`, `False` or `None`: `true`, `false`, `null`.
 * 3. The schema allows a string: the sampled text as a string; a JSON string literal never gets here, by rule 1.
 * 4. The text is a JSON string whose content is JSON of an allowed type (`"5"` for an integer): that content.
 * 5. The text is JSON of a type that the schema does not allow and the tag says `string="false"`: as it stands. The
 *    tool's own check must answer the model.
 * 6. Otherwise the sampled text as a string. It is never dropped, and never becomes `{}`.
 */
export function valueToJson(
  raw: string,
  flag: StringFlag,
  types: ReadonlySet<JsonType> | undefined,
): CoercedValue {
  const text = trimJson(raw);
  const parsed = parse(text);
  if (parsed !== undefined && (types === undefined || allows(types, typeOfValue(parsed))))
    return { json: text, note: flag === true ? "text was read as JSON, as the schema asks" : undefined };
  const literal = PYTHON_LITERALS[text];
  if (types !== undefined && literal !== undefined && types.has(literal.type))
    return { json: literal.json, note: `${text} was read as ${literal.json}` };
  if (types?.has("string"))
    return { json: JSON.stringify(raw), note: "taken as a string, as the schema asks" };
  if (types !== undefined && typeof parsed === "string") {
    const inner = trimJson(parsed);
    const innerValue = parse(inner);
    if (innerValue !== undefined && allows(types, typeOfValue(innerValue)))
      return { json: inner, note: "the quotes were dropped, as the schema asks" };
  }
  if (parsed !== undefined && flag === false) return { json: text, note: "not of the schema's type" };
  return { json: JSON.stringify(raw), note: "not JSON: kept as a string" };
}

const PYTHON_LITERALS: Record<string, { json: string; type: JsonType } | undefined> = Object.assign(
  Object.create(null),
  {
    True: { json: "true", type: "boolean" },
    False: { json: "false", type: "boolean" },
    None: { json: "null", type: "null" },
  },
);

function trimJson(text: string): string {
  return text.replace(/^[ \t\n\r]+/, "").replace(/(?<![ \t\n\r])[ \t\n\r]+$/, "");
}

function parse(text: string): JsonValue | undefined {
  // Most text that is not JSON shows it at once, which is much cheaper than an error.
  if (!/^[-0-9"[{tfn]/.test(text)) return undefined;
  try {
    return parseJson(text);
  } catch {
    // Not JSON, or nested deeper than history could be rendered again.
    return undefined;
  }
}
