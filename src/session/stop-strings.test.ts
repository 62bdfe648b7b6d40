import { describe, expect, it } from "vitest";
import { Random } from "../core/random.ts";
import { StopMatcher } from "./stop-strings.ts";

function run(stops: string[], pieces: string[]) {
  const matcher = new StopMatcher(stops);
  const released: string[] = [];
  for (const piece of pieces) {
    const { text, matched } = matcher.push(piece);
    released.push(text);
    if (matched !== undefined) return { text: released.join(""), matched, released };
  }
  released.push(matcher.finish());
  return { text: released.join(""), matched: undefined, released };
}

/** All ways to cut `text` in up to three pieces. */
function* splits(text: string): Generator<string[]> {
  for (let a = 0; a <= text.length; a++) {
    for (let b = a; b <= text.length; b++) yield [text.slice(0, a), text.slice(a, b), text.slice(b)];
  }
}

describe("stop strings", () => {
  it("cuts exactly before the stop string (case 105)", () => {
    expect(run(["STOP"], ["A B C ST", "OP D"])).toMatchObject({ text: "A B C ", matched: "STOP" });
  });

  it.each([
    ["A B C STOP D", ["STOP"], "A B C ", "STOP"],
    ["aaab", ["aab"], "a", "aab"],
    ["STSTOP", ["STOP"], "ST", "STOP"],
    ["ababac!", ["abac"], "ab", "abac"],
    ["xABCDy", ["ABCD", "BC"], "xA", "BC"],
    ["xABCy", ["ABC", "BC"], "x", "ABC"],
    ["no match ST", ["STOP"], "no match ST", undefined],
    ["line\n\nUser: hi", ["\n\nUser:", "\n\n\n"], "line", "\n\nUser:"],
    ["smile 😀 end", ["😁", "😀 "], "smile ", "😀 "],
    ["", ["x"], "", undefined],
  ])("gives the same result for %j under every split", (text, stops, expected, matched) => {
    for (const pieces of splits(text)) expect(run(stops, pieces)).toMatchObject({ text: expected, matched });
    expect(run(stops, [...text])).toMatchObject({ text: expected, matched });
  });

  it("agrees with a character-by-character search on random texts", () => {
    const random = new Random(21);
    const word = (length: number) => Array.from({ length }, () => "ab"[random.nextUint32() % 2]).join("");
    for (let trial = 0; trial < 500; trial++) {
      const text = word(20);
      const stops = [word(2 + (trial % 4)), word(3 + (trial % 3))];
      let expected: { text: string; matched: string | undefined } = { text, matched: undefined };
      for (let end = 1; end <= text.length && expected.matched === undefined; end++) {
        const ending = stops.filter((stop) => text.slice(0, end).endsWith(stop));
        const matched = ending.sort((a, b) => b.length - a.length)[0];
        if (matched !== undefined) expected = { text: text.slice(0, end - matched.length), matched };
      }
      const at = random.nextUint32() % 20;
      expect(run(stops, [text.slice(0, at), text.slice(at)])).toMatchObject(expected);
      expect(run(stops, [...text])).toMatchObject(expected);
    }
  });

  it("holds back only what may become a stop string", () => {
    expect(run(["STOP"], ["Hello S", "o"]).released).toEqual(["Hello ", "So", ""]);
    expect(run(["STOP"], ["Hello", " you"]).released).toEqual(["Hello", " you", ""]);
  });

  it("refuses empty and too many stop strings", () => {
    expect(() => new StopMatcher([""])).toThrow(/expected 1\.\.4096 characters, got 0/);
    expect(() => new StopMatcher(new Array(65).fill("x"))).toThrow(/at most 64/);
  });
});
