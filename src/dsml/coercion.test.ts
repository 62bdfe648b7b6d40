import { describe, expect, it } from "vitest";
import { parseAnswer } from "../../test/fixtures/parsed-answer.ts";
import type { ToolDefinition } from "../template/conversation.ts";
import type { JsonValue } from "../template/json-python.ts";
import { MAX_JSON_DEPTH } from "../template/json-python.ts";
import { valueToJson } from "./coercion.ts";
import { type JsonType, toolTable } from "./tool-table.ts";

/** JSON of a value as it comes out of a whole call, and whether a note was made. */
function argument(
  schema: JsonValue | undefined,
  flag: string,
  value: string,
): [json: string, noted: boolean] {
  const properties = schema === undefined ? {} : { v: schema };
  const tools: ToolDefinition[] = [{ name: "t", parameters: { type: "object", properties } }];
  const text = `<｜DSML｜invoke name="t">\n<｜DSML｜parameter name="v"${flag}>${value}</｜DSML｜parameter>\n</｜DSML｜invoke>`;
  const { calls } = parseAnswer(text, { tools });
  return [calls[0].args.slice('{"v":'.length, -1), calls[0].notes.length > 0];
}

const TRUE = ' string="true"';
const FALSE = ' string="false"';
const of = (...type: JsonType[]): JsonValue => ({ type });

describe("values by their schema", () => {
  it.each<[string, JsonValue | undefined, string, string, string, boolean]>([
    ["a string", of("string"), TRUE, "10", '"10"', false],
    ["a string, no schema", undefined, TRUE, "[1]", '"[1]"', false],
    ["no flag, no schema", undefined, "", "5", '"5"', false],
    ["a flag that is none", undefined, ' string="maybe"', "5", '"5"', false],
    ["JSON, no schema", undefined, FALSE, ' {"a": [1.0, 2e3]}\n', '{"a": [1.0, 2e3]}', false],
    ["JSON by schema", of("integer"), FALSE, "12", "12", false],
    ["an integer is a number", of("number"), FALSE, "12", "12", false],
    ["1.0 is an integer", of("integer"), FALSE, "1.0", "1.0", false],
    ["rule 1: text that is an integer", of("integer"), TRUE, " 5\n", "5", true],
    ["rule 1: text that is an array", of("array", "null"), TRUE, "[1, 2]", "[1, 2]", true],
    ["rule 1: no flag, by schema", of("boolean"), "", "true", "true", false],
    ["rule 2: Python's True", of("boolean"), FALSE, "True", "true", true],
    ["rule 2: Python's None", of("integer", "null"), TRUE, "None", "null", true],
    ["rule 2: not without a schema", undefined, FALSE, "True", '"True"', true],
    ["rule 3: bare text for a string", of("string"), FALSE, "hello ", '"hello "', true],
    ["rule 3: a number for a string", of("string"), FALSE, "10", '"10"', true],
    ["a string literal for a string", of("string"), FALSE, '"10"', '"10"', false],
    ["a number for number or string", of("string", "number"), FALSE, "10", "10", false],
    ["rule 4: a quoted integer", of("integer"), FALSE, '"5"', "5", true],
    ["rule 4: not if it is no integer", of("integer"), FALSE, '"5.5"', '"5.5"', true],
    ["rule 5: another type", of("integer"), FALSE, "[5]", "[5]", true],
    ["rule 6: text for an integer", of("integer"), TRUE, "five", '"five"', true],
    ["rule 6: not JSON", undefined, FALSE, "12 apples", '"12 apples"', true],
    ["rule 6: nothing", of("integer"), FALSE, "", '""', true],
    ["rule 6: not JSON's numbers", of("number"), FALSE, "+1", '"+1"', true],
    ["rule 6: NaN", undefined, FALSE, "NaN", '"NaN"', true],
  ])("%s", (_, schema, flag, value, json, noted) => {
    expect(argument(schema, flag, value)).toEqual([json, noted]);
  });

  it("too deep for history is kept as a string", () => {
    const deep = "[".repeat(MAX_JSON_DEPTH + 2) + "]".repeat(MAX_JSON_DEPTH + 2);
    expect(valueToJson(deep, false, undefined).json).toBe(JSON.stringify(deep));
  });

  it("escapes in strings survive any cut", () => {
    expect(argument(undefined, TRUE, '"\\\u0000\n\u2028')[0]).toBe('"\\"\\\\\\u0000\\n\u2028"');
  });
});

describe("types of a parameter", () => {
  const types = (v: JsonValue, extra: Record<string, JsonValue> = {}) => {
    const parameters = { type: "object", properties: { v }, ...extra };
    const found = toolTable([{ name: "t", parameters }])
      .get("t")!
      .typesOf("v");
    return found && [...found];
  };

  it.each<[string, JsonValue, JsonType[] | undefined]>([
    ["one type", { type: "integer" }, ["integer"]],
    ["several", { type: ["string", "null"] }, ["string", "null"]],
    ["enum", { enum: ["a", 1, null] }, ["string", "integer", "null"]],
    ["const", { const: 1.5 }, ["number"]],
    ["anyOf", { anyOf: [{ type: "array" }, { type: "null" }] }, ["array", "null"]],
    ["anyOf with an unknown part", { anyOf: [{ type: "array" }, {}] }, undefined],
    ["nothing", {}, undefined],
    ["a reference", { $ref: "#/$defs/a~1b" }, ["object"]],
    ["a reference to itself", { $ref: "#/properties/v" }, undefined],
    ["a foreign reference", { $ref: "https://example.org/x" }, undefined],
    ["an unknown type", { type: "date" }, undefined],
    ["no schema at all", null, undefined],
  ])("%s", (_, schema, expected) => {
    expect(types(schema, { $defs: { "a/b": { type: "object" } } })).toEqual(expected);
  });

  it("names like members of objects are not found in the prototype", () => {
    const tool = toolTable([{ name: "t", parameters: { properties: {} } }]).get("t")!;
    expect(["constructor", "__proto__", "toString"].map((name) => tool.typesOf(name))).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    expect(toolTable([{ name: "t" }]).get("constructor")).toBeUndefined();
  });

  it("tools come plain, wrapped, as Maps, or with an input schema", () => {
    const schema = { properties: { v: { type: "integer" } }, required: ["v"] };
    const table = toolTable([
      { name: "a", parameters: schema },
      { type: "function", function: { name: "b", parameters: schema } },
      new Map<string, JsonValue>([
        ["name", "c"],
        ["parameters", new Map([["required", ["v"]]])],
      ]),
      { name: "d", input_schema: schema },
      { description: "no name" },
    ]);
    expect([...table.keys()]).toEqual(["a", "b", "c", "d"]);
    expect([...table.values()].map(({ required }) => required)).toEqual([["v"], ["v"], ["v"], ["v"]]);
  });
});
