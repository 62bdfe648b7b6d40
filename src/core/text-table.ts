// Tables for terminals and for text in reports.

/** How a table is drawn. */
export interface TextTableOptions {
  /** A line of dashes under the first row. */
  isRuled?: boolean;
}

/**
 * A line per row of cells, columns two spaces apart and as wide as their widest cell. `align`: "l" or "r" for each column;
 * numbers belong on the right. No line ends in spaces.
 */
export function textTable(
  align: string,
  rows: readonly (readonly string[])[],
  options: TextTableOptions = {},
): string[] {
  const widths = Array.from(align, (_, column) =>
    // No spread into Math.max: there may be more rows than a call may have arguments.
    rows.reduce((widest, row) => Math.max(widest, row[column].length), 0),
  );
  const lines = rows.map((row) =>
    widths
      .map((width, column) =>
        align[column] === "r" ? row[column].padStart(width) : row[column].padEnd(width),
      )
      .join("  ")
      .trimEnd(),
  );
  if (options.isRuled) lines.splice(1, 0, widths.map((width) => "-".repeat(width)).join("  "));
  return lines;
}
