import { describe, expect, it } from "vitest";
import { type Any, isValid } from "../../test/fixtures/schema-oracle.ts";
import { tokenizer } from "../../test/fixtures/test-server.ts";
import { mulberry32 } from "../../test/random-values.ts";
import { createAnswerParser } from "../dsml/answer-parser.ts";
import type { ParseEvent } from "../dsml/events.ts";
import { CALL_TAGS } from "../dsml/tags.ts";
import { Automaton } from "./automaton.ts";
import { type AnswerConstraint, constraintGrammar } from "./constraint.ts";
import { FIRST_MARK } from "./grammar.ts";
import { ConstraintFactory, type TokenConstraint } from "./token-constraint.ts";
import type { TokenMask } from "./token-trie.ts";

const DSML_ID = tokenizer.specialId(CALL_TAGS.mark)!;
const has = (mask: TokenMask, id: number) => ((mask[id >> 5] >>> (id & 31)) & 1) === 1;
function idsOf(mask: TokenMask): number[] {
  const ids: number[] = [];
  mask.forEach((word, at) => {
    for (let rest = word; rest !== 0; rest &= rest - 1) ids.push(at * 32 + 31 - Math.clz32(rest & -rest));
  });
  return ids.filter((id) => id < tokenizer.vocabSize);
}

/** Tokens that bring a text to its end. */
const CLOSING = new Set(
  Array.from({ length: tokenizer.vocabSize }, (_, id) => id).filter(
    (id) => id === DSML_ID || /^[<"\]},]/.test(tokenizer.tokenText(id)),
  ),
);
const next = mulberry32(12);
const pick = (limit: number) => next() % limit;

/** Tokens that the constraint lets a random writer write, or undefined when it does not come to an end. */
function write(
  place: TokenConstraint,
  limit: number,
  look: (ids: number[], tokens: number[]) => void = () => {},
) {
  const tokens: number[] = [];
  while (tokens.length < limit) {
    const allowed = idsOf(place.mask(false));
    look(allowed, tokens);
    expect(allowed.length).toBeGreaterThan(0);
    if (allowed.includes(tokenizer.eosId) && (allowed.length === 1 || pick(3) === 0)) return tokens;
    const closing = allowed.filter((id) => CLOSING.has(id));
    const ordinary = allowed.filter((id) => id !== tokenizer.eosId);
    const from = closing.length > 0 && pick(5) > 0 ? closing : ordinary;
    const id = from[pick(from.length)];
    tokens.push(id);
    place.accept(id);
  }
  return undefined;
}

const weather = {
  type: "object",
  properties: {
    city: { type: "string", minLength: 1 },
    days: { type: "integer", minimum: 1, maximum: 14 },
    unit: { enum: ["C", "F", 0] },
    at: { type: ["string", "null"], maxLength: 9 },
    place: {
      type: "object",
      properties: { lat: { type: "number" } },
      required: ["lat"],
      additionalProperties: false,
    },
    'od"d': { type: "boolean" },
  },
  required: ["city", "days", "at", "place"],
};
const tools = [
  { name: "get_weather", parameters: weather },
  { name: "stop", parameters: { type: "object", properties: {} } },
];
const calls = { tools, maxCalls: 3, tags: CALL_TAGS };
const CONSTRAINTS: AnswerConstraint[] = [
  { json: { schema: { type: "object" } } },
  { json: { schema: { type: "string", minLength: 3, maxLength: 30 } } },
  { json: { schema: { type: "string", pattern: "^[a-z]+( [a-z]+)*$", maxLength: 40 } } },
  { json: { schema: { type: "array", items: { type: "number", minimum: 0.5, maximum: 120 }, maxItems: 5 } } },
  { calls },
  { json: { schema: weather }, calls },
];

describe("masks", () => {
  it("hold exactly the tokens that the grammar can go on with", () => {
    const factory = new ConstraintFactory(tokenizer);
    let count = 0;
    for (const constraint of CONSTRAINTS) {
      const machine = new Automaton(constraintGrammar(constraint));
      const symbolsOf = (id: number) => (id === DSML_ID ? [FIRST_MARK] : [...tokenizer.bytesView(id)]);
      for (let round = 0; round < 3; round++) {
        write(factory.open(constraint), 40, (allowed, tokens) => {
          if (tokens.length > 6 && pick(4) > 0) return;
          const at = machine.run(tokens.flatMap(symbolsOf));
          const expected: number[] = [];
          for (let id = 0; id < tokenizer.vocabSize; id++) {
            const isMark = id === DSML_ID && constraint.calls !== undefined;
            const isAllowed = tokenizer.isSpecial(id)
              ? (isMark && machine.step(at, FIRST_MARK) >= 0) ||
                (id === tokenizer.eosId && machine.accepts(at))
              : machine.run(symbolsOf(id), at) >= 0;
            if (isAllowed) expected.push(id);
          }
          expect(allowed).toEqual(expected);
          count++;
        });
      }
    }
    expect(count).toBeGreaterThan(100);
  });

  it("leave thinking free, but do not let it end the answer", () => {
    const place = new ConstraintFactory(tokenizer).open(CONSTRAINTS[0]);
    const mask = place.mask(true);
    for (const id of tokenizer.stopIds) expect(has(mask, id)).toBe(false);
    expect(idsOf(mask).length).toBe(tokenizer.vocabSize - tokenizer.stopIds.length);
    expect(tokenizer.stopIds).toContain(tokenizer.eosId);
    expect(() => place.accept(tokenizer.encode("x")[0])).toThrow(/not allowed/);
  });

  it("count on when the automaton starts afresh, two answers at once", () => {
    const factory = new ConstraintFactory(tokenizer);
    const constraint = { json: { schema: { type: "string", maxLength: 9_000 } } };
    const [quote] = tokenizer.encode('"');
    const [letter] = tokenizer.encode("a");
    const places = [factory.open(constraint), factory.open(constraint)];
    for (const place of places) place.accept(quote);
    for (let length = 0; length < 9_000; length++) {
      for (const place of places) {
        if (length % 3000 === 0) expect(has(place.mask(false), letter)).toBe(true);
        place.accept(letter);
      }
    }
    for (const place of places) {
      expect(idsOf(place.mask(false)).map((id) => tokenizer.tokenText(id))).toEqual(['"']);
    }
  });
});

describe("calls", () => {
  it("are read back as calls of the tools with arguments of their schemas", () => {
    const factory = new ConstraintFactory(tokenizer);
    const seen = { calls: 0, several: 0, parameters: new Set<string>() };
    for (let round = 0; round < 40; round++) {
      const tokens = write(factory.open({ calls: { ...calls, maxCalls: 1 + (round % 3) } }), 400);
      if (tokens === undefined) continue;
      const parser = createAnswerParser({ thinking: false, tools });
      const events: ParseEvent[] = [];
      const detokenizer = tokenizer.createDetokenizer({ hideControl: true });
      for (const id of tokens) {
        const text = detokenizer.push(id);
        const marks: [number, number][] =
          id === DSML_ID ? [[text.length - CALL_TAGS.mark.length, text.length]] : [];
        events.push(...parser.push(text, marks));
      }
      events.push(...parser.push(detokenizer.end(), []), ...parser.finish("stop"));
      expect(events.filter(({ type }) => type === "content" || type === "malformedCall")).toEqual([]);
      const ends = events.filter((event) => event.type === "toolCallEnd");
      expect(ends.length).toBeGreaterThan(0);
      expect(ends.length).toBeLessThanOrEqual(1 + (round % 3));
      if (ends.length > 1) seen.several++;
      for (const { name, argumentsJson, notes } of ends) {
        const args = JSON.parse(argumentsJson);
        const schema = tools.find((tool) => tool.name === name)!.parameters;
        expect([notes, argumentsJson, isValid([schema as Any], args, schema)]).toEqual([
          [],
          argumentsJson,
          true,
        ]);
        for (const key of Object.keys(args)) seen.parameters.add(key);
        seen.calls++;
      }
    }
    expect(seen.calls).toBeGreaterThan(20);
    expect(seen.several).toBeGreaterThan(2);
    expect([...seen.parameters].sort()).toEqual(Object.keys(weather.properties).sort());
  });

  it("cannot be of tools whose schemas are not supported, unless they are only a choice", () => {
    const odd = [
      { name: "odd", parameters: { type: "object", properties: { list: { uniqueItems: true } } } },
    ];
    const strict = { calls: { tools: [...tools, ...odd], maxCalls: 1, tags: CALL_TAGS } };
    expect(() => constraintGrammar(strict)).toThrow(
      "tools[2].properties.list.uniqueItems: the keyword uniqueItems",
    );
    constraintGrammar({ calls: { ...strict.calls, isLenient: true } });
    expect(() => constraintGrammar({ calls: { ...calls, tools: [] } })).toThrow(/no value/);
  });
});
