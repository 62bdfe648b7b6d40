// Markdown as blocks: plain data, no DOM. What models write: headings, lists, code, tables, quotes, rules, paragraphs.
import { isTable, tableBlock } from "./markdown-table.js";

/**
 * @typedef {{ kind: "paragraph", text: string }
 *   | { kind: "heading", level: number, text: string }
 *   | { kind: "code", language: string, text: string, isOpen: boolean }
 *   | { kind: "list", isOrdered: boolean, start: number, items: Block[][] }
 *   | { kind: "quote", blocks: Block[] }
 *   | import("./markdown-table.js").TableBlock
 *   | { kind: "rule" }} Block
 */

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
/** Deeper quotes and lists are shown as text: nesting comes from the model, the stack is ours. */
const MAX_DEPTH = 12;

/**
 * @param {string} text
 * @param {number} [depth]
 * @returns {Block[]}
 */
export function parseBlocks(text, depth = 0) {
  return splitBlocks(text, depth).map((source) => parseBlock(source, depth));
}

/**
 * The sources of the blocks, in order. Text that is only added to changes the last one alone, so a stream needs to draw
 * nothing but that again.
 * @param {string} text
 * @param {number} [depth]
 * @returns {string[]}
 */
export function splitBlocks(text, depth = 0) {
  const lines = text.split("\n");
  /** @type {string[]} */
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at++;
      continue;
    }
    const end = blockEnd(lines, at, depth);
    blocks.push(lines.slice(at, end).join("\n"));
    at = end;
  }
  return blocks;
}

/**
 * The line after the block that starts at line `at`.
 * @param {string[]} lines
 * @param {number} at
 * @param {number} depth
 */
function blockEnd(lines, at, depth) {
  const fence = FENCE.exec(lines[at]);
  if (fence !== null) return fenceEnd(lines, at, fence[2]);
  if (HEADING.test(lines[at]) || RULE.test(lines[at])) return at + 1;
  if (isTable(lines, at)) return lineWhere(lines, at + 2, (line) => !line.includes("|"));
  if (depth < MAX_DEPTH && QUOTE.test(lines[at])) return lineWhere(lines, at, (line) => !QUOTE.test(line));
  const item = ITEM.exec(lines[at]);
  if (depth < MAX_DEPTH && item !== null) return listEnd(lines, at, item);
  return lineWhere(lines, at + 1, (line, index) => line.trim() === "" || startsBlock(lines, index));
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {string} marks
 */
function fenceEnd(lines, at, marks) {
  const closes = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}\\s*$`);
  const close = lineWhere(lines, at + 1, (line) => closes.test(line));
  return Math.min(close + 1, lines.length);
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {RegExpExecArray} first
 */
function listEnd(lines, at, first) {
  const isOrdered = /\d/.test(first[2]);
  let end = at + 1;
  for (let index = at + 1; index < lines.length; index++) {
    const line = lines[index];
    if (line.trim() === "") continue;
    const item = ITEM.exec(line);
    const goesOn = item !== null && !RULE.test(line) && /\d/.test(item[2]) === isOrdered;
    const isInside = /^(?: {2,}|\t)/.test(line);
    const isLazy = index === end && !startsBlock(lines, index);
    if (!goesOn && !isInside && !isLazy) break;
    end = index + 1;
    const fence = FENCE.exec(line.trimStart());
    if (fence !== null && isInside) {
      const closes = new RegExp(`^\\s*${fence[2][0]}{${fence[2].length},}\\s*$`);
      end = Math.min(lineWhere(lines, index + 1, (next) => closes.test(next)) + 1, lines.length);
      index = end - 1;
    }
  }
  return end;
}

/**
 * @param {string[]} lines
 * @param {number} at
 */
function startsBlock(lines, at) {
  const line = lines[at];
  return (
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    QUOTE.test(line) ||
    ITEM.test(line) ||
    isTable(lines, at)
  );
}

/**
 * @param {string[]} lines
 * @param {number} from
 * @param {(line: string, index: number) => boolean} isWanted
 */
function lineWhere(lines, from, isWanted) {
  for (let index = from; index < lines.length; index++) if (isWanted(lines[index], index)) return index;
  return lines.length;
}

/**
 * @param {string} source
 * @param {number} depth
 * @returns {Block}
 */
function parseBlock(source, depth) {
  const lines = source.split("\n");
  const fence = FENCE.exec(lines[0]);
  if (fence !== null) return codeBlock(lines, fence);
  const heading = HEADING.exec(lines[0]);
  if (heading !== null) return { kind: "heading", level: heading[1].length, text: heading[2] };
  if (RULE.test(lines[0])) return { kind: "rule" };
  if (isTable(lines, 0)) return tableBlock(lines);
  if (depth < MAX_DEPTH && QUOTE.test(lines[0])) {
    const inner = lines.map((line) => QUOTE.exec(line)?.[1] ?? line).join("\n");
    return { kind: "quote", blocks: parseBlocks(inner, depth + 1) };
  }
  const item = ITEM.exec(lines[0]);
  if (depth < MAX_DEPTH && item !== null) return listBlock(lines, item, depth);
  return { kind: "paragraph", text: source };
}

/**
 * @param {string[]} lines
 * @param {RegExpExecArray} fence
 * @returns {Block}
 */
function codeBlock(lines, [, indent, marks, info]) {
  const last = lines[lines.length - 1].trim();
  const isOpen = lines.length === 1 || !(last.startsWith(marks) && last.replaceAll(marks[0], "") === "");
  const inner = lines.slice(1, isOpen ? undefined : -1);
  const text = inner.map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line)).join("\n");
  return { kind: "code", language: info.trim().split(/\s/)[0], text, isOpen };
}

/**
 * @param {string[]} lines
 * @param {RegExpExecArray} first
 * @param {number} depth
 * @returns {Block}
 */
function listBlock(lines, first, depth) {
  /** @type {string[][]} */
  const items = [];
  let indent = 0;
  for (const line of lines) {
    const item = ITEM.exec(line);
    const isNew = item !== null && (items.length === 0 || item[1].length < indent);
    if (isNew) {
      indent = item[1].length + item[2].length + Math.min(Math.max(item[3].length, 1), 4);
      items.push([item[4]]);
    } else {
      const inside = line.slice(0, indent).trim() === "" ? line.slice(indent) : line.trimStart();
      items[items.length - 1].push(inside);
    }
  }
  return {
    kind: "list",
    isOrdered: /\d/.test(first[2]),
    start: Number.parseInt(first[2], 10) || 1,
    items: items.map((item) => parseBlocks(item.join("\n"), depth + 1)),
  };
}
