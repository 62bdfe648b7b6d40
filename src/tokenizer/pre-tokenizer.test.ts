// The scanner against the three patterns that tokenizer.json states, with \s as Unicode White_Space.
import { expect, it } from "vitest";
import { randomText, seededRandom } from "../../test/fixtures/random-text.ts";
import { SPLIT_PATTERNS } from "./hugging-face.ts";
import { splitPieces } from "./pre-tokenizer.ts";

const WHITE_SPACE = "\\p{White_Space}";
const patterns = SPLIT_PATTERNS.map(
  (source) => new RegExp(source.replaceAll("\\s", WHITE_SPACE).replaceAll("\\S", `\\P{White_Space}`), "gu"),
);

/** Isolating split: matches and the gaps between them, in order. */
function isolate(text: string, pattern: RegExp): string[] {
  const parts: string[] = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    parts.push(text.slice(at, match.index), match[0]);
    at = match.index + match[0].length;
  }
  parts.push(text.slice(at));
  return parts.filter((part) => part !== "");
}

function pieces(text: string): string[] {
  const parts: string[] = [];
  splitPieces(text, (start, end) => parts.push(text.slice(start, end)));
  return parts;
}

const expected = (text: string) =>
  patterns.reduce((parts, pattern) => parts.flatMap((part) => isolate(part, pattern)), [text]);

it("cuts familiar text into words with their leading space, numbers of three digits and CJK runs", () => {
  expect(pieces("Hello, world! 12345 日本語です。")).toEqual([
    "Hello",
    ",",
    " world",
    "!",
    " ",
    "123",
    "45",
    " ",
    "日本語です",
    "。",
  ]);
  expect(pieces("")).toEqual([]);
  expect(pieces("a  \n\n  b\u0085\ufeffc")).toEqual(["a", "  \n\n", " ", " b", "\u0085", "\ufeffc"]);
});

it("equals the patterns on 4000 random texts", () => {
  const random = seededRandom(1);
  for (let i = 0; i < 4000; i++) {
    const text = randomText(random, 1 + Math.floor(random() * 60));
    expect(pieces(text), JSON.stringify(text)).toEqual(expected(text));
  }
});

it("equals the patterns around every code point of the basic plane and some beyond", () => {
  const contexts = (char: string) => `a${char}${char}b ${char}1${char}\n${char} !${char}`;
  for (let first = 0; first < 0x20000; first += 64) {
    if (first >= 0xd800 && first < 0xe000) continue;
    const text = Array.from({ length: 64 }, (_, i) => contexts(String.fromCodePoint(first + i))).join("日x");
    expect(pieces(text), `from U+${first.toString(16)}`).toEqual(expected(text));
  }
});
