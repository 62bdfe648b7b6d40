// Cuts text into the pieces inside which BPE may merge. A hand-written scanner for the three isolating splits that
// tokenizer.json states as patterns: numbers of up to three digits, CJK runs, then the long alternation. One pass and
// no backtracking, so that no input is slow; the tests hold it against the patterns themselves.
import { CHAR_CLASS, charClass } from "./char-classes.ts";

const { number: NUMBER, letterOrMark: LETTER, punctuationOrSymbol: PUNCTUATION } = CHAR_CLASS;
const { whiteSpace: SPACE, newline: NEWLINE, cjk: CJK } = CHAR_CLASS;

const MAX_NUMBER_DIGITS = 3;

/** Receives the pieces in order; together they cover the text. */
export type PieceSink = (start: number, end: number) => void;

const isAsciiLetter = (code: number): boolean => (code | 32) >= 97 && (code | 32) <= 122;
const width = (codePoint: number): number => (codePoint > 0xffff ? 2 : 1);

/** Reports each piece of `text` as code-unit offsets. `text` must be well-formed UTF-16. Time is linear. */
export function splitPieces(text: string, sink: PieceSink): void {
  let at = 0;
  while (at < text.length) {
    const kind = charClass(text.codePointAt(at)!) & (NUMBER | CJK);
    let end = at;
    let taken = 0;
    while (end < text.length && (kind !== NUMBER || taken < MAX_NUMBER_DIGITS)) {
      const codePoint = text.codePointAt(end)!;
      if ((charClass(codePoint) & (NUMBER | CJK)) !== kind) break;
      end += width(codePoint);
      taken++;
    }
    if (kind === NUMBER) sink(at, end);
    else splitSegment(text, at, end, sink);
    at = end;
  }
}

/** The third split within [start, end): matches and the gaps between them are pieces. */
function splitSegment(text: string, start: number, end: number, sink: PieceSink): void {
  let gapStart = start;
  let at = start;
  while (at < end) {
    const stop = matchEnd(text, at, end);
    if (stop === at) {
      at += width(text.codePointAt(at)!);
      continue;
    }
    if (gapStart < at) sink(gapStart, at);
    sink(at, stop);
    at = stop;
    gapStart = stop;
  }
  if (gapStart < end) sink(gapStart, end);
}

/** End of the alternation's match at `at`, or `at` if nothing matches there. The order of the tests is the pattern's. */
function matchEnd(text: string, at: number, end: number): number {
  const codePoint = text.codePointAt(at)!;
  const kind = charClass(codePoint);
  const next = at + width(codePoint);
  const nextKind = next < end ? charClass(text.codePointAt(next)!) : 0;
  if (kind & PUNCTUATION) {
    // [ASCII punctuation][A-Za-z]+ , then  ?[\p{P}\p{S}]+[\r\n]*
    if (codePoint < 128 && next < end && isAsciiLetter(text.charCodeAt(next))) {
      let stop = next + 1;
      while (stop < end && isAsciiLetter(text.charCodeAt(stop))) stop++;
      return stop;
    }
    return runEnd(text, runEnd(text, next, end, PUNCTUATION), end, NEWLINE);
  }
  // [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ : anything but a line break may lead a word.
  if (kind & LETTER) return runEnd(text, next, end, LETTER);
  if (nextKind & LETTER && !(kind & NEWLINE)) return runEnd(text, next, end, LETTER);
  if (codePoint === 32 && nextKind & PUNCTUATION)
    return runEnd(text, runEnd(text, next, end, PUNCTUATION), end, NEWLINE);
  return kind & SPACE ? whiteSpaceEnd(text, at, end) : at;
}

/** \s*[\r\n]+ , then \s+(?!\S) , then \s+ : all white space is one code unit wide. */
function whiteSpaceEnd(text: string, at: number, end: number): number {
  let stop = at;
  let afterNewline = at;
  while (stop < end) {
    const kind = charClass(text.charCodeAt(stop));
    if (!(kind & SPACE)) break;
    stop++;
    if (kind & NEWLINE) afterNewline = stop;
  }
  if (afterNewline > at) return afterNewline;
  // The last space before a word is left to lead it.
  return stop === end || stop === at + 1 ? stop : stop - 1;
}

function runEnd(text: string, from: number, end: number, mask: number): number {
  let at = from;
  while (at < end) {
    const codePoint = text.codePointAt(at)!;
    if (!(charClass(codePoint) & mask)) break;
    at += width(codePoint);
  }
  return at;
}
