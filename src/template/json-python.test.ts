import { describe, expect, it } from "vitest";
import { JsonNumber, MAX_JSON_DEPTH, parseJson, pythonFloat, pythonJson } from "./json-python.ts";

const rewrite = (text: string) => pythonJson(parseJson(text));

describe("JSON in Python's spelling", () => {
  it("separates with a space and keeps the order of keys, also of those that look like numbers", () => {
    expect(rewrite('{"b":[1,2,{"10":null,"9":true}],"a":{}}')).toBe(
      '{"b": [1, 2, {"10": null, "9": true}], "a": {}}',
    );
    expect(rewrite('{"a":1,"b":2,"a":3}')).toBe('{"a": 3, "b": 2}');
    expect(rewrite('{"__proto__":1}')).toBe('{"__proto__": 1}');
    expect(pythonJson({ a: undefined, b: [], c: "x" })).toBe('{"b": [], "c": "x"}');
  });

  it("keeps non-ASCII text and escapes what Python escapes", () => {
    expect(rewrite('"\\u00e9 日本 \\u2028 \\u007f \\u001f \\/ \\ud83d\\ude00"')).toBe(
      '"é 日本 \u2028 \u007f \\u001f / 😀"',
    );
    expect(pythonJson('quote " back \\ \n\r\t\b\f')).toBe('"quote \\" back \\\\ \\n\\r\\t\\b\\f"');
  });

  // Expected values are what CPython prints.
  it.each([
    ["1.0", "1.0"],
    ["1e5", "100000.0"],
    ["0.0001", "0.0001"],
    ["0.00001", "1e-05"],
    ["1.5e-7", "1.5e-07"],
    ["1e15", "1000000000000000.0"],
    ["1e16", "1e+16"],
    ["123456789012345680.0", "1.2345678901234568e+17"],
    ["1e22", "1e+22"],
    ["2.5e300", "2.5e+300"],
    ["-0.0", "-0.0"],
    ["-0", "0"],
    ["0.1", "0.1"],
    ["5e-324", "5e-324"],
    ["12345678901234567890", "12345678901234567890"],
    ["-7", "-7"],
  ])("prints the number %s as %s", (text, want) => {
    expect(rewrite(text)).toBe(want);
  });

  it("prints JavaScript numbers as integers where they are, and big ones exactly", () => {
    expect(pythonJson([1, 1.5, 1e300, -0, 9007199254740993n])).toBe(
      "[1, 1.5, 1e+300, -0.0, 9007199254740993]",
    );
    expect(pythonJson(new JsonNumber("1.0"))).toBe("1.0");
  });

  it("round-trips floats through their shortest spelling", () => {
    for (let i = 0; i < 2000; i++) {
      const value = (i * 7919 + 1) / 3 ** (i % 40) / (i % 2 ? 1e12 : 1);
      expect(Number(pythonFloat(value))).toBe(value);
      expect(Number(pythonFloat(-value))).toBe(-value);
    }
  });

  it("refuses what JSON cannot say", () => {
    expect(() => pythonJson(Number.NaN)).toThrow(RangeError);
    expect(() => rewrite("1e999")).toThrow(RangeError);
    expect(() => pythonJson(undefined as never)).toThrow(TypeError);
    const loop: unknown[] = [];
    loop.push(loop);
    expect(() => pythonJson(loop as never)).toThrow(/deeper than 512/);
  });
});

describe("the parser", () => {
  it.each([
    "",
    "{",
    "[1,]",
    "{,}",
    "{'a':1}",
    '{"a" 1}',
    "01",
    "+1",
    ".5",
    "1.",
    "NaN",
    "tru",
    '"a',
    '"\n"',
    '"\\x"',
    "1 2",
  ])("refuses %j with the place", (text) => {
    expect(() => parseJson(text)).toThrow(SyntaxError);
    expect(() => parseJson(text)).toThrow(/expected .* at character \d+/);
  });

  it("agrees with JSON.parse on what it accepts", () => {
    const plain = (value: unknown): unknown => {
      if (value instanceof JsonNumber) return Number(value.lexeme);
      if (value instanceof Map)
        return Object.fromEntries([...value].map(([key, item]) => [key, plain(item)]));
      return Array.isArray(value) ? value.map(plain) : value;
    };
    for (const text of [
      ' { "a" : [ 1 , -2.5e3, "\\"\\\\\\u0041" , true , false , null , { } ] }\n',
      "0",
      '"x"',
      "[]",
    ])
      expect(plain(parseJson(text))).toEqual(JSON.parse(text));
  });

  it("reads nesting up to its limit and no deeper", () => {
    const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
    expect(rewrite(nested(MAX_JSON_DEPTH))).toBe(nested(MAX_JSON_DEPTH));
    expect(() => parseJson(nested(100_000))).toThrow(RangeError);
  });
});
