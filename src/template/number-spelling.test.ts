import { expect, it } from "vitest";
import { jsonMembers, pythonJson } from "./json-python.ts";
import { parseSpelledJson, spellingOf } from "./number-spelling.ts";

it.each([
  '{"minimum": 1.0, "maximum": 2}',
  '{"a": {"b": [1.0, 2, 3.5, {"c": -4.0}]}, "d": 0.0}',
  '{"big": 12345678901234567890, "exact": 9007199254740993}',
  "[1.0, [2.0], 1e+16, 0.0001]",
])("renders %s as it was written", (text) => {
  expect(pythonJson(parseSpelledJson(text) as never)).toBe(text);
});

it("renders other spellings as Python does after reading them", () => {
  const data = parseSpelledJson('{"a": 1e2, "b": 1.50, "c": 1E0, "d": -0, "e": -0.0}');
  expect(pythonJson(data as never)).toBe('{"a": 100.0, "b": 1.5, "c": 1.0, "d": 0, "e": -0.0}');
});

it("gives plain data, with members that remember", () => {
  const text = '{"a": 1.0, "b": "1.0", "c": 2, "1": 3.0}';
  const data = parseSpelledJson(text) as Record<string, number>;
  expect(data).toEqual(JSON.parse(text));
  expect(spellingOf(data, "a")).toBe("1.0");
  expect(spellingOf(data, "1")).toBe("3.0");
  expect(["b", "c"].map((key) => spellingOf(data, key))).toEqual([undefined, undefined]);
  expect(jsonMembers(data).map(([key, value]) => `${key} ${pythonJson(value)}`)).toContain("a 1.0");
});

it("throws as JSON.parse does", () => {
  for (const text of ['{"a": 1.0,}', "1.0.0", '{"a": 01.0}'])
    expect(() => parseSpelledJson(text)).toThrow(SyntaxError);
});
