// Which classes a code point belongs to, as the pre-tokenizer's patterns see it. Tables are made on demand, one page
// of 256 code points at a time, from the JavaScript engine's Unicode data.

/** Bits of a code point's class. A code point has at most one of the first four; CJK and the rest may overlap. */
export const CHAR_CLASS = {
  number: 1,
  letterOrMark: 2,
  punctuationOrSymbol: 4,
  whiteSpace: 8,
  /** Carriage return and line feed only. */
  newline: 16,
  /** The ranges that the second split isolates: U+4E00–9FA5, U+3040–309F, U+30A0–30FF. */
  cjk: 32,
} as const;

// Not \s: JavaScript's \s has U+FEFF and lacks U+0085, White_Space is the other way round.
const patterns: readonly [RegExp, number][] = [
  [/^\p{N}$/u, CHAR_CLASS.number],
  [/^[\p{L}\p{M}]$/u, CHAR_CLASS.letterOrMark],
  [/^[\p{P}\p{S}]$/u, CHAR_CLASS.punctuationOrSymbol],
  [/^\p{White_Space}$/u, CHAR_CLASS.whiteSpace],
  [/^[\r\n]$/u, CHAR_CLASS.newline],
  [/^[\u4e00-\u9fa5\u3040-\u30ff]$/u, CHAR_CLASS.cjk],
];

const PAGE_COUNT = 0x1100;
const pages: (Uint8Array | undefined)[] = new Array(PAGE_COUNT).fill(undefined);

function loadPage(page: number): Uint8Array {
  const classes = new Uint8Array(256);
  for (let i = 0; i < 256; i++) {
    const char = String.fromCodePoint(page * 256 + i);
    for (const [pattern, bit] of patterns) if (pattern.test(char)) classes[i] |= bit;
  }
  pages[page] = classes;
  return classes;
}

/** Class bits (`CHAR_CLASS`) of a code point, 0 for controls, format characters and unassigned ones. */
export function charClass(codePoint: number): number {
  return (pages[codePoint >> 8] ?? loadPage(codePoint >> 8))[codePoint & 255];
}
