// Tables of Markdown: which lines are one, and their cells.

/** @typedef {{ kind: "table", align: string[], head: string[], rows: string[][] }} TableBlock */

const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/**
 * Whether a table starts at line `at`: a line of cells, and under it a rule of as many.
 * @param {string[]} lines
 * @param {number} at
 */
export function isTable(lines, at) {
  const rule = lines[at + 1];
  if (rule === undefined || !lines[at].includes("|") || !TABLE_RULE.test(rule)) return false;
  return cells(lines[at]).length === cells(rule).length;
}

/**
 * The table that these lines are: rows have as many cells as the head.
 * @param {string[]} lines
 * @returns {TableBlock}
 */
export function tableBlock(lines) {
  const head = cells(lines[0]);
  const align = cells(lines[1]).map((rule) => {
    if (/^:-+:$/.test(rule)) return "center";
    return rule.endsWith(":") ? "right" : "left";
  });
  const rows = lines.slice(2).map((line) => {
    const row = cells(line).slice(0, head.length);
    return [...row, ...new Array(head.length - row.length).fill("")];
  });
  return { kind: "table", align, head, rows };
}

/**
 * A table's line in cells; `\|` and bars in code do not part them.
 * @param {string} line
 */
function cells(line) {
  const text = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "");
  /** @type {string[]} */
  const out = [];
  let cell = "";
  let isCode = false;
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (char === "`") isCode = !isCode;
    if (char === "\\" && text[at + 1] === "|") {
      cell += "|";
      at++;
    } else if (char === "|" && !isCode) {
      out.push(cell.trim());
      cell = "";
    } else cell += char;
  }
  return [...out, cell.trim()];
}
