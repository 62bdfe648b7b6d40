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
const WORDS = new Map<string, TagKind>([
  ["tool_calls", "block"],
  ["function_calls", "block"],
  ["invoke", "invoke"],
  ["parameter", "parameter"],
]);
/** Every accepted spelling of the mark: bars in full or ASCII width, missing or doubled. */
const MARKS = spellings();
const QUOTES: Record<string, string> = { '"': '"', "'": "'", "“": "”", "‘": "’" };

function spellings(): string[] {
  const bars = ["｜", "｜｜", "|", "||"];
  const marks = [""];
  for (const bar of bars) for (const left of [bar, ""]) marks.push(`${left}DSML${bar}`);
  // Longest first, so that no spelling hides a longer one.
  return marks.sort((a, b) => b.length - a.length);
}

/** Whether the tag is spelled with the mark of the template. */
export function isExact(tag: Tag): boolean {
  return tag.mark === MARK;
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
  if (text.length - at > 1 && !"/｜|Dtfip".includes(text[at + 1])) return undefined;
  const closing = text[at + 1] === "/";
  const from = at + (closing ? 2 : 1);
  let partial = false;
  for (const mark of MARKS) {
    const read = readAfterMark(window, from, mark, closing);
    if (read === "partial") partial = true;
    else if (read !== undefined) return read.end - at > MAX_TAG_UNITS ? undefined : read;
  }
  return partial && text.length - at < MAX_TAG_UNITS ? "partial" : undefined;
}

function readAfterMark(window: TextWindow, from: number, mark: string, closing: boolean): TagResult {
  const { text } = window;
  const matched = matchPrefix(text, from, mark);
  if (matched === "no" || !markMayBeReal(window, from, Math.min(from + mark.length, text.length), mark))
    return undefined;
  if (matched === "partial") return "partial";
  let partial = false;
  for (const [word, kind] of WORDS) {
    const at = from + mark.length;
    const wordMatch = matchPrefix(text, at, word);
    if (wordMatch === "partial") partial = true;
    if (wordMatch !== "yes") continue;
    return readAttributes(text, at + word.length, { kind, closing, mark, word });
  }
  return partial ? "partial" : undefined;
}

function markMayBeReal(window: TextWindow, start: number, end: number, mark: string): boolean {
  const inner = mark.indexOf(MARK);
  if (inner === -1) return true;
  return window.mayBeSpecial(start + inner, Math.min(end, start + inner + MARK.length));
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
