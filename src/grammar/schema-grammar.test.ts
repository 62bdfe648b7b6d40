import { describe, expect, it } from "vitest";
import { type Any, isValid, randomDocument, randomValue } from "../../test/fixtures/schema-oracle.ts";
import { mulberry32 } from "../../test/random-values.ts";
import { Automaton } from "./automaton.ts";
import { constraintGrammar } from "./constraint.ts";
import { GrammarError } from "./grammar-error.ts";

const machineOf = (schema: Any) => new Automaton(constraintGrammar({ json: { schema } }));

function accepts(machine: Automaton, text: string): boolean {
  const position = machine.run(new TextEncoder().encode(text));
  return position >= 0 && machine.accepts(position);
}

/** A text that the automaton writes by itself: random symbols, ends where it can with some likelihood. */
function randomText(machine: Automaton, pick: (limit: number) => number, limit: number): string | undefined {
  const bytes: number[] = [];
  let at = machine.start;
  while (bytes.length < limit) {
    if (machine.accepts(at) && (!machine.goesOn(at) || pick(3) === 0))
      return Buffer.from(bytes).toString("utf8");
    const nexts = Array.from({ length: 256 }, (_, symbol) => symbol).filter(
      (symbol) => machine.step(at, symbol) >= 0,
    );
    expect(nexts.length).toBeGreaterThan(0); // nothing that can be entered is a dead end
    const closers = nexts.filter((symbol) => '"]}'.includes(String.fromCharCode(symbol)));
    const from = closers.length > 0 && pick(2) ? closers : nexts;
    const symbol = from[pick(from.length)];
    bytes.push(symbol);
    at = machine.step(at, symbol);
  }
  return undefined;
}

describe("random schemas", () => {
  it("take exactly the values that a validator takes, and write only such", () => {
    const next = mulberry32(Number(process.env.DS4_SEED ?? 1));
    const pick = (limit: number) => next() % limit;
    const counts = { valid: 0, invalid: 0, written: 0, never: 0 };
    for (let round = 0; round < 120; round++) {
      const schema = randomDocument(pick);
      let machine: Automaton | undefined;
      try {
        machine = machineOf(schema);
      } catch (error) {
        const { message } = error as Error;
        expect(message).toMatch(/no value meets the schema|two patterns|arrays and objects in an enum/);
        counts.never++;
        if (!message.startsWith("no value")) continue;
      }
      for (let probe = 0; probe < 30; probe++) {
        const value = randomValue(pick, schema, schema);
        const indent = [undefined, 2, 1][pick(3)];
        const text = JSON.stringify(value, undefined, indent);
        const expected = isValid([schema], value, schema);
        counts[expected ? "valid" : "invalid"]++;
        if (machine === undefined) expect(expected).toBe(false);
        else
          expect([JSON.stringify(schema), text, accepts(machine, text)]).toEqual([
            JSON.stringify(schema),
            text,
            expected,
          ]);
      }
      for (let probe = 0; machine && probe < 3; probe++) {
        const text = randomText(machine, pick, 600);
        if (text === undefined) continue;
        counts.written++;
        expect([
          JSON.stringify(schema),
          text,
          isValid([schema], JSON.parse(text), schema, "no order"),
        ]).toEqual([JSON.stringify(schema), text, true]);
      }
    }
    expect(counts.valid).toBeGreaterThan(700);
    expect(counts.invalid).toBeGreaterThan(250);
    expect(counts.written).toBeGreaterThan(120);
    expect(counts.never).toBeLessThan(20);
  });
});

describe("single rules", () => {
  it("take any JSON without a schema, with bounded white space", () => {
    const any = machineOf({});
    for (const text of [
      '{"a": [1, -2.5e3, "x\\u00e9\\n", {}], "b": null}',
      "[]",
      '"\\ud83d\\ude00"',
      "[\n  1,\n  2\n]",
    ]) {
      expect([text, accepts(any, text)]).toEqual([text, true]);
    }
    for (const text of [
      '"\\ud83d"',
      '"\n"',
      "[1,]",
      "{,}",
      "[1  ,2]",
      " 1",
      "1 ",
      `[\n${" ".repeat(41)}1]`,
      "nul",
      '"\\x"',
    ]) {
      expect([text, accepts(any, text)]).toEqual([text, false]);
    }
    expect(any.run([0x22, 0xff])).toBe(-1);
    expect(any.run([0x22, 0xed, 0xa0])).toBe(-1);
  });

  it("keep further properties apart from those that the schema names", () => {
    const schema = {
      properties: { ab: { type: "integer" }, "": { type: "null" }, 'q"\n': true },
      additionalProperties: { type: "string" },
    };
    const machine = machineOf({ type: "object", ...schema });
    for (const text of [
      '{"ab": 1, "x": "y"}',
      '{"a": "y"}',
      '{"abc": "y"}',
      '{"q\\"": ""}',
      '{"": null}',
      '{"q\\"\\n": 5}',
    ]) {
      expect([text, accepts(machine, text)]).toEqual([text, true]);
    }
    for (const text of ['{"ab": "1"}', '{"": "x"}', '{"\\u0061b": "x"}', '{"x": 1}', '{"x": "", "ab": 1}']) {
      expect([text, accepts(machine, text)]).toEqual([text, false]);
    }
  });

  it("refuse what they cannot enforce, with path and keyword", () => {
    const problem = (schema: unknown) => {
      try {
        machineOf(schema);
      } catch (error) {
        if (error instanceof GrammarError) return [error.path, error.reason];
        throw error;
      }
      return "accepted";
    };
    const inside = (schema: unknown) => ({ type: "object", properties: { list: { items: schema } } });
    const at = "properties.list.items";
    expect(problem(inside({ uniqueItems: true }))).toEqual([
      `${at}.uniqueItems`,
      "the keyword uniqueItems is not supported",
    ]);
    expect(problem(inside({ not: {} }))).toEqual([`${at}.not`, "the keyword not is not supported"]);
    expect(problem(inside({ multipleOf: 2 }))[0]).toBe(`${at}.multipleOf`);
    expect(problem(inside({ pattern: "a(?=b)" }))).toEqual([`${at}.pattern`, "(?= is not supported"]);
    expect(problem(inside({ type: "text" }))[0]).toBe(`${at}.type`);
    expect(problem(inside({ $ref: "#/nowhere" }))).toEqual([`${at}.$ref`, "#/nowhere points to nothing"]);
    expect(problem(inside({ $ref: "http://x/y" }))[0]).toBe(`${at}.$ref`);
    expect(problem(inside("string"))[0]).toBe(at);
    expect(problem({ $ref: "#" })).toEqual(["", "the reference leads back to itself"]);
    expect(problem({ anyOf: [{ type: "null" }, { $ref: "#" }] })[1]).toBe(
      "the reference leads back to itself",
    );
    expect(problem(false)).toEqual(["", "no value meets the schema"]);
    expect(problem({ type: "array", items: { $ref: "#" }, minItems: 1 })).toEqual([
      "",
      "no value meets the schema",
    ]);
    expect(
      problem({
        type: "object",
        title: "t",
        format: "x",
        uniqueItems: false,
        "x-y": 1,
        propertyNames: { type: "string" },
      }),
    ).toBe("accepted");
    expect(problem({ allOf: Array.from({ length: 11 }, () => ({ anyOf: [{}, {}] })) })[1]).toMatch(
      /more than 1024/,
    );
  });
});
