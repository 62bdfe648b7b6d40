// The tags of tool calls, in the spelling of the template and in those that models drift into. A tag is read from the
// text left over so far, so the answer may be that more text is needed.
import { SPECIAL_TEXT } from "../tokenizer/tokenizer-tables.ts";
import type { TextWindow } from "./text-window.ts";

/** What a tag is about: the block, a call, a parameter. */
export type TagKind = "block" | "invoke" | "parameter";

/** A tag. */
export interface Tag {
  kind: TagKind;
  closing: boolean;
  /** What stands between `<` or `</` and the name: the DSML mark, a variant of it, or nothing. */
  mark: string;
  /** The name as written, which the closing tag repeats. */
  word: string;
  attributes: ReadonlyMap<string, string>;
  /** Absolute offset behind the tag. */
  end: number;
}

/** A tag, undefined where there is none, or `partial` where more text decides. */
export type TagResult = Tag | "partial" | undefined;

/** Longest tag in UTF-16 units; tool names of the known APIs have at most 128. */
export const MAX_TAG_UNITS = 512;
/** Most white space between the tag of a block and its first call that still makes it a block, in UTF-16 units. */
export const MAX_GAP_UNITS = 64;

const MARK = SPECIAL_TEXT.dsml;
/** How the template spells tags: the mark before every word, and the words of a block, a call and a parameter. */
export const CALL_TAGS = {
  mark: MARK,
  block: "tool_calls",
  invoke: "invoke",
  parameter: "parameter",
} as const;
/** Words of tags; no two begin alike. */
const WORDS: readonly (readonly [word: string, kind: TagKind])[] = [
  ["tool_calls", "block"],
  ["function_calls", "block"],
  ["invoke", "invoke"],
  ["parameter", "parameter"],
];
const QUOTES: Record<string, string> = { '"': '"', "'": "'", "“": "”", "‘": "’" };

/** Whether the tag is spelled with the mark of the template. */
export function isExact(tag: Tag): boolean {
  return tag.mark === MARK;
}

/**
 * Absolute offset of the next `<` from `at` on that may begin a tag of a call or of thinking, or -1. One at the end of
 * the text may.
 */
export function nextOpening(text: string, at: number): number {
  let open = text.indexOf("<", at);
  while (open !== -1 && open + 1 < text.length && !"/｜|Dtfip".includes(text[open + 1]))
    open = text.indexOf("<", open + 1);
  return open;
}

/** The closing tag that belongs to an opening one. */
export function closerOf(tag: Tag): string {
  return `</${tag.mark}${tag.word}>`;
}

/** Whether `char` is white space as tags know it. */
export function isSpace(char: string | undefined): boolean {
  return char === " " || char === "\n" || char === "\t" || char === "\r";
}

/** Absolute offset of the first character from `at` on that is no white space, or the end of the text. */
export function skipSpace(text: string, at: number): number {
  while (at < text.length && isSpace(text[at])) at++;
  return at;
}

/**
 * Reads the tag whose `<` stands at `at`. The mark spelled in full by ordinary tokens makes no tag: that is how a
 * model or a file writes about it.
 */
export function readTag(window: TextWindow, at: number): TagResult {
  const { text } = window;
  const closing = text[at + 1] === "/";
  const from = at + (closing ? 2 : 1);
  if (from >= text.length) return "partial";
  const mark = readMark(text, from);
  if (mark === "no" || !markMayBeReal(window, from, mark)) return undefined;
  if (mark === "partial") return "partial";
  const wordAt = from + mark.mark.length;
  const word = WORDS.find(([name]) => name[0] === text[wordAt]);
  if (word === undefined) return wordAt === text.length ? "partial" : undefined;
  const matched = matchPrefix(text, wordAt, word[0]);
  if (matched !== "yes") return matched === "partial" ? "partial" : undefined;
  const tag = { kind: word[1], closing, mark: mark.mark, word: word[0] };
  const read = readAttributes(text, wordAt + tag.word.length, tag);
  if (read === "partial") return text.length - at < MAX_TAG_UNITS ? "partial" : undefined;
  return read !== undefined && read.end - at > MAX_TAG_UNITS ? undefined : read;
}

/**
 * Reads the mark at `from`: nothing, or `DSML` between bars of one kind, one or two on each side, where those on the
 * left may be missing.
 */
function readMark(text: string, from: number): { mark: string } | "partial" | "no" {
  const left = countBars(text, from, 2);
  const name = matchPrefix(text, from + left, "DSML");
  if (name === "no") return left === 0 ? { mark: "" } : "no";
  if (name === "partial") return "partial";
  const rightFrom = from + left + "DSML".length;
  const right = countBars(text, rightFrom, left === 0 ? 2 : left);
  const isCut = rightFrom + right === text.length;
  if (right === 0 || right < left) return isCut ? "partial" : "no";
  if (left > 0 && text[from] !== text[rightFrom]) return "no";
  return { mark: text.slice(from, rightFrom + right) };
}

function countBars(text: string, from: number, most: number): number {
  if (text[from] !== "｜" && text[from] !== "|") return 0;
  let count = 1;
  while (count < most && text[from + count] === text[from]) count++;
  return count;
}

/** Whether the mark read at `start` (or as much of it as there is) does not come from ordinary tokens. */
function markMayBeReal(window: TextWindow, start: number, mark: { mark: string } | "partial"): boolean {
  const text = mark === "partial" ? window.text.slice(start) : mark.mark;
  const inner = text.indexOf("｜DSML");
  if (inner === -1 || (mark !== "partial" && !text.includes(MARK))) return true;
  return window.mayBeSpecial(start + inner, Math.min(window.text.length, start + inner + MARK.length));
}

function readAttributes(text: string, from: number, tag: Omit<Tag, "attributes" | "end">): TagResult {
  const attributes = new Map<string, string>();
  let at = from;
  for (;;) {
    const next = skipBlanks(text, at);
    if (next >= text.length) return "partial";
    if (text[next] === ">") return { ...tag, attributes, end: next + 1 };
    if (next === at || tag.closing) return undefined;
    const attribute = readAttribute(text, next);
    if (attribute === "partial" || attribute === undefined) return attribute;
    if (attributes.has(attribute.name)) return undefined;
    attributes.set(attribute.name, attribute.value);
    at = attribute.end;
  }
}

type AttributeResult = { name: string; value: string; end: number } | "partial" | undefined;

function readAttribute(text: string, from: number): AttributeResult {
  let at = from;
  while (at < text.length && /[A-Za-z_-]/.test(text[at])) at++;
  const name = text.slice(from, at);
  if (at < text.length && name === "") return undefined;
  at = skipBlanks(text, at);
  if (at >= text.length) return "partial";
  if (text[at] !== "=") return undefined;
  at = skipBlanks(text, at + 1);
  if (at >= text.length) return "partial";
  const quote = QUOTES[text[at]];
  if (quote === undefined) return undefined;
  const start = at + 1;
  for (at = start; at < text.length; at++) {
    if (text[at] === quote) return { name, value: unescapeEntities(text.slice(start, at)), end: at + 1 };
    if (text[at] === "<" || text[at] === "\n") return undefined;
  }
  return "partial";
}

function skipBlanks(text: string, at: number): number {
  while (text[at] === " " || text[at] === "\t") at++;
  return at;
}

const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", "#39": "'" };

function unescapeEntities(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|apos|#39);/g, (_, name: string) => ENTITIES[name]);
}

function matchPrefix(text: string, at: number, wanted: string): "yes" | "partial" | "no" {
  if (text.startsWith(wanted, at)) return "yes";
  const left = text.length - at;
  return left < wanted.length && wanted.startsWith(text.slice(at)) ? "partial" : "no";
}

/**
 * Searches `window` for the literal tag `wanted` from `from` on. Returns its offset if it is there, else where the
 * text ends that surely is not part of it. `markAt` and `markLength` say which part must not come from ordinary tokens.
 */
export function findLiteral(
  window: TextWindow,
  wanted: string,
  from: number,
  [markAt, markLength]: readonly [number, number],
): { found: boolean; at: number } {
  const { text } = window;
  for (let at = text.indexOf(wanted, from); at !== -1; at = text.indexOf(wanted, at + 1)) {
    if (window.mayBeSpecial(at + markAt, at + markAt + markLength)) return { found: true, at };
  }
  for (let at = Math.max(from, text.length - wanted.length + 1); at < text.length; at++) {
    const part = text.slice(at);
    if (!wanted.startsWith(part)) continue;
    const markEnd = Math.min(at + markAt + markLength, text.length);
    if (at + markAt >= markEnd || window.mayBeSpecial(at + markAt, markEnd)) return { found: false, at };
  }
  return { found: false, at: text.length };
}

/** Searches for the closing tag of `tag`, as `findLiteral`. */
export function findCloser(window: TextWindow, tag: Tag, from: number): { found: boolean; at: number } {
  const inner = tag.mark.indexOf(MARK);
  return findLiteral(window, closerOf(tag), from, inner === -1 ? [0, 0] : [2 + inner, MARK.length]);
}
