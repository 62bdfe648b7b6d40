// Markdown within a line, as DOM nodes: code, bold, italics, struck text, links. Anything else stays the text it is.
import { append, el } from "./dom.js";

/** Emphasis within emphasis beyond this depth is shown as text. */
const MAX_DEPTH = 8;
/**
 * One alternative per construct. Each ends at the line's end or after a bounded number of characters, so that a text of
 * nothing but marks stays cheap.
 */
const INLINE = new RegExp(
  [
    /(?<code>(?<ticks>`+)(?!`)(?<codeText>[^\n]{0,2000}?[^`\n])\k<ticks>(?!`))/,
    /\\(?<escaped>[\\`*_{}[\]()#+\-.!|~<>])/,
    /\[(?<linkText>[^[\]\n]{1,1000})\]\((?<linkTo>[^\s()]{1,2000}(?:\([^\s()]{0,200}\)[^\s()]{0,200})?)(?:\s+"[^"\n]{0,300}")?\)/,
    /<(?<auto>https?:\/\/[^\s<>]{1,2000})>/,
    /(?<![\w/])(?<bare>https?:\/\/[^\s<>"'`|]{1,2000}[^\s<>"'`|.,;:!?)\]*_])/,
    /(?<strongMark>\*\*|__)(?=\S)(?<strong>[^\n]{0,800}?\S)\k<strongMark>(?!\w)/,
    /~~(?=\S)(?<struck>[^\n]{0,800}?\S)~~/,
    /\*(?=[^\s*])(?<em>[^\n*]{0,2000}?[^\s*])\*(?!\*)/,
    /(?<![\w_])_(?=[^\s_])(?<emLow>[^\n_]{0,2000}?[^\s_])_(?![\w_])/,
  ]
    .map(({ source }) => source)
    .join("|"),
  "g",
);

/**
 * Nodes for one paragraph, cell or heading.
 * @param {string} text
 * @param {number} [depth]
 * @returns {Node[]}
 */
export function inlineNodes(text, depth = 0) {
  /** @type {Node[]} */
  const nodes = [];
  let at = 0;
  if (depth < MAX_DEPTH) {
    for (const match of text.matchAll(INLINE)) {
      nodes.push(document.createTextNode(text.slice(at, match.index)));
      nodes.push(nodeOf(match, depth));
      at = match.index + match[0].length;
    }
  }
  nodes.push(document.createTextNode(text.slice(at)));
  return nodes.filter((node) => node.nodeType !== Node.TEXT_NODE || node.textContent !== "");
}

/**
 * @param {RegExpExecArray} match
 * @param {number} depth
 * @returns {Node}
 */
function nodeOf(match, depth) {
  const groups = match.groups ?? {};
  if (groups.code !== undefined) return el("code", {}, groups.codeText.trim() || groups.codeText);
  if (groups.escaped !== undefined) return document.createTextNode(groups.escaped);
  const url = groups.auto ?? groups.bare;
  if (url !== undefined) return link(url, [document.createTextNode(url)], match[0]);
  if (groups.linkTo !== undefined) {
    return link(groups.linkTo, inlineNodes(groups.linkText, depth + 1), match[0]);
  }
  const strong = groups.strong;
  if (strong !== undefined) return withNodes(el("strong"), strong, depth);
  if (groups.struck !== undefined) return withNodes(el("s"), groups.struck, depth);
  return withNodes(el("em"), groups.em ?? groups.emLow, depth);
}

/**
 * @param {HTMLElement} element
 * @param {string} text
 * @param {number} depth
 */
function withNodes(element, text, depth) {
  append(element, inlineNodes(text, depth + 1));
  return element;
}

/**
 * A link that opens beside this page, or the source as text where it is not the web's.
 * @param {string} address
 * @param {Node[]} nodes
 * @param {string} source
 * @returns {Node}
 */
function link(address, nodes, source) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return document.createTextNode(source);
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") return document.createTextNode(source);
  const anchor = el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow" });
  append(anchor, nodes);
  return anchor;
}
