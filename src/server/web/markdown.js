// A text that may still grow, shown as Markdown. Only blocks whose source changed are made again.
import { append, copyButton, el } from "./dom.js";
import { parseBlocks, splitBlocks } from "./markdown-blocks.js";
import { inlineNodes } from "./markdown-inline.js";

/** An element that shows a text. */
export class MarkdownView {
  element = el("div", { class: "prose" });
  /** @type {{ source: string, nodes: Node[] }[]} */
  #blocks = [];

  /** @param {string} text */
  set(text) {
    const sources = splitBlocks(text);
    let same = 0;
    while (same < sources.length && this.#blocks[same]?.source === sources[same]) same++;
    for (const { nodes } of this.#blocks.splice(same))
      for (const node of nodes) node.parentNode?.removeChild(node);
    for (const source of sources.slice(same)) {
      const nodes = parseBlocks(source).map(blockNode);
      append(this.element, nodes);
      this.#blocks.push({ source, nodes });
    }
  }
}

/**
 * @param {import("./markdown-blocks.js").Block} block
 * @returns {HTMLElement}
 */
function blockNode(block) {
  switch (block.kind) {
    case "code":
      return codeNode(block.language, block.text);
    case "heading":
      // The page's own headings end at level 2.
      return filled(el(/** @type {"h3"} */ (`h${Math.min(block.level + 2, 6)}`)), block.text);
    case "list":
      return listNode(block);
    case "quote":
      return el("blockquote", {}, ...block.blocks.map(blockNode));
    case "table":
      return tableNode(block);
    case "rule":
      return el("hr");
    default:
      return filled(el("p"), block.text);
  }
}

/**
 * @template {HTMLElement} T
 * @param {T} element
 * @param {string} text
 * @returns {T}
 */
function filled(element, text) {
  // Models break lines where they mean a new line.
  text.split("\n").forEach((line, index) => {
    if (index > 0) element.append(el("br"));
    append(element, inlineNodes(line.trim()));
  });
  return element;
}

/**
 * A block of code with its language and a button that copies it.
 * @param {string} language
 * @param {string} text
 */
export function codeNode(language, text) {
  return el(
    "figure",
    { class: "code" },
    el(
      "figcaption",
      {},
      el("span", {}, language || "text"),
      copyButton("Copy code", () => text),
    ),
    // Wide code scrolls, so the keyboard must reach it.
    el(
      "pre",
      { tabIndex: 0, "aria-label": `Code, ${language || "text"}`, role: "region" },
      el("code", {}, text),
    ),
  );
}

/** @param {Extract<import("./markdown-blocks.js").Block, { kind: "list" }>} block */
function listNode({ isOrdered, start, items }) {
  const list = isOrdered ? el("ol", { start }) : el("ul");
  for (const blocks of items) {
    const [first, ...rest] = blocks;
    const item = el("li");
    // A line alone needs no paragraph around it.
    if (first?.kind === "paragraph") append(item, [...filled(el("p"), first.text).childNodes]);
    else if (first !== undefined) item.append(blockNode(first));
    append(item, rest.map(blockNode));
    list.append(item);
  }
  return list;
}

/** @param {Extract<import("./markdown-blocks.js").Block, { kind: "table" }>} block */
function tableNode({ align, head, rows }) {
  /** @param {"th" | "td"} tag @param {string} text @param {number} column */
  const cell = (tag, text, column) =>
    filled(el(tag, { class: `align-${align[column]}`, ...(tag === "th" ? { scope: "col" } : {}) }), text);
  const table = el(
    "table",
    {},
    el("thead", {}, el("tr", {}, ...head.map((text, column) => cell("th", text, column)))),
    el(
      "tbody",
      {},
      ...rows.map((row) => el("tr", {}, ...row.map((text, column) => cell("td", text, column)))),
    ),
  );
  return el("div", { class: "table", tabIndex: 0, role: "region", "aria-label": "Table" }, table);
}
