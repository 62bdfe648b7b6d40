import { expect, it } from "vitest";
import { tokenizer } from "../../test/fixtures/test-server.ts";
import { constraintGrammar } from "./constraint.ts";
import { GrammarError } from "./grammar-error.ts";
import { ConstraintFactory } from "./token-constraint.ts";

const times = <Item>(count: number, make: (index: number) => Item) =>
  Array.from({ length: count }, (_, at) => make(at));
const objectOf = (properties: unknown[]) => ({
  type: "object",
  properties: Object.fromEntries(properties.map((schema, at) => [`p${at}`, schema])),
});
const nested = (depth: number): unknown =>
  depth === 0 ? { type: "string" } : { type: "array", items: nested(depth - 1) };
const doubling = Object.fromEntries(
  times(30, (at) => [`d${at}`, { anyOf: [{ $ref: `#/$defs/d${at + 1}` }, { $ref: `#/$defs/d${at + 1}` }] }]),
);

const SCHEMAS: Record<string, unknown> = {
  "many references to many choices": {
    ...objectOf(times(2000, () => ({ $ref: "#/$defs/big" }))),
    $defs: { big: { anyOf: times(1000, (at) => ({ enum: [`v${at}`] })) } },
  },
  "many references to choices of nothing": {
    ...objectOf(times(9000, () => ({ $ref: "#/$defs/big" }))),
    $defs: { big: { anyOf: times(1000, () => ({ enum: [] })) } },
  },
  "references that double": { $ref: "#/$defs/d0", $defs: { ...doubling, d30: {} } },
  "a long chain of references": {
    $ref: "#/$defs/c0",
    $defs: Object.fromEntries(
      times(5000, (at) => [`c${at}`, at === 4999 ? {} : { $ref: `#/$defs/c${at + 1}` }]),
    ),
  },
  "a pattern of many choices": { type: "string", pattern: `^(${times(2000, (at) => `w${at}`).join("|")})*$` },
  "repetitions of repetitions": { type: "string", pattern: "^((a{1,99}){1,99}){1,99}$" },
  "a pattern that forgets nothing": { type: "string", pattern: "^[a-z ]*a[a-z ]{300}$" },
  "a pattern with a long length": { type: "string", pattern: "^(ab|c)+$", maxLength: 1_000_000 },
  "many properties of Unicode": {
    type: "string",
    pattern: times(40, (at) => `\\p{${at % 2 ? "Lu" : "Script=Greek"}}`).join(""),
  },
  "strings of many lengths": { anyOf: times(900, (at) => ({ type: "string", maxLength: 40 + at })) },
  "deep nesting": nested(2000),
  "large counts": { type: "array", items: { type: "string", minLength: 2 ** 31 - 1 }, minItems: 2 ** 31 - 1 },
  "a million enum values": { enum: times(150_000, (at) => at) },
  "optional properties": objectOf(times(5000, () => ({ type: "null" }))),
};

it.each(Object.keys(SCHEMAS))("%s: refused by name or done, soon", (name) => {
  const started = process.cpuUsage();
  const constraint = { json: { schema: SCHEMAS[name] } };
  let problem: unknown;
  try {
    constraintGrammar(constraint);
    const place = new ConstraintFactory(tokenizer).open(constraint);
    for (let count = 0; count < 40; count++) {
      const mask = place.mask(false);
      const word = mask.findLastIndex((bits) => bits !== 0);
      const id = word * 32 + 31 - Math.clz32(mask[word]);
      if (id === tokenizer.eosId) break;
      place.accept(id);
    }
  } catch (error) {
    problem = error;
  }
  if (problem !== undefined) expect(problem).toBeInstanceOf(GrammarError);
  const seconds = process.cpuUsage(started).user / 1e6;
  if (process.env.DS4_SHOW) console.log(name, seconds.toFixed(2), (problem as Error)?.message);
  expect(seconds).toBeLessThan(20);
});
