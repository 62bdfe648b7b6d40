import { describe, expect, it } from "vitest";
import { Automaton } from "./automaton.ts";
import { CharRules } from "./char-rules.ts";
import { GrammarBuilder } from "./grammar.ts";
import { addRegex, type LengthBounds } from "./regex-grammar.ts";
import { parseRegex } from "./regex-parser.ts";

function automaton(pattern: string, length: LengthBounds, spelling: "json" | "raw"): Automaton | undefined {
  const builder = new GrammarBuilder();
  builder.ruleOf((from) =>
    addRegex(builder, new CharRules(builder), parseRegex(pattern), { from, spelling, length }),
  );
  const grammar = builder.finish();
  return grammar && new Automaton(grammar);
}

function accepts(machine: Automaton | undefined, text: string): boolean {
  if (machine === undefined) return false;
  const position = machine.run(new TextEncoder().encode(text));
  return position >= 0 && machine.accepts(position);
}

const PATTERNS = [
  "^[a-c]+$",
  "ab|ba",
  "^(a|b)*c{2,3}$",
  "^a?b+?c*$",
  "^(?:ab){0,2}(?<n>c)$",
  "^[^ab]\\w\\d?$",
  "\\s",
  "^.$",
  "^\\u0061\\x62\\u{63}$",
  "^(a|)(b|c)?$",
  "^\\p{Lu}+$",
  "^$",
  "^[\\]\\-a]+$",
  "^a{2,}$",
  "c$|^b",
];

describe("patterns", () => {
  it("match what JavaScript matches, in both spellings and within bounds", () => {
    const alphabet = ["a", "b", "c", "1", " ", "\n", "É", '"', "]", "😀", "\\", "-", "\u0001"];
    let state = 9;
    const random = (limit: number) => {
      state = Math.imul(state, 48271) & 0x7fffffff;
      return (state >> 8) % limit;
    };
    let hits = 0;
    for (const pattern of PATTERNS) {
      const regex = new RegExp(pattern, "u");
      for (const length of [
        { min: 0, max: Infinity },
        { min: 2, max: Infinity },
        { min: 1, max: 3 },
      ]) {
        const raw = automaton(pattern, length, "raw");
        const json = automaton(pattern, length, "json");
        for (let probe = 0; probe < 400; probe++) {
          const size = random(6);
          const few = probe % 2 ? 3 : alphabet.length;
          const text = Array.from({ length: size }, () => alphabet[random(few)]).join("");
          const expected = regex.test(text) && size >= length.min && size <= length.max;
          if (expected) hits++;
          expect([pattern, length, text, accepts(raw, text)]).toEqual([pattern, length, text, expected]);
          expect(accepts(json, JSON.stringify(text).slice(1, -1))).toBe(expected);
        }
      }
    }
    expect(hits).toBeGreaterThan(1000);
  });

  it("refuse by name what they cannot say", () => {
    const message = (pattern: string) => {
      try {
        parseRegex(pattern);
      } catch (error) {
        return (error as Error).message;
      }
      return "accepted";
    };
    expect(message("a(?=b)")).toBe("(?= is not supported");
    expect(message("(?<!a)b")).toBe("(?< is not supported");
    expect(message("\\bword")).toBe("\\b is not supported");
    expect(message("(a)\\1")).toBe("\\1 is not supported");
    expect(message("(^a)")).toBe("^ is supported at the start only");
    expect(message("a$b")).toBe("$ is supported at the end only");
    expect(message("(")).toBe("it is not a valid regular expression");
    expect(() => automaton("(a{100}){100}", { min: 0, max: Infinity }, "raw")).toThrow(/more than 4000/);
  });
});
