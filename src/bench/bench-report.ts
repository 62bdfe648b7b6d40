// Turns measured rows into CSV, a table for people, and the "unstable run" verdict. Pure text, no measuring.
import { UsageError } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import { textTable } from "../core/text-table.ts";
import { formatBytes, formatSeconds } from "../core/units.ts";
import type { BenchFacts } from "./bench-facts.ts";
import type { FrontierRow } from "./frontier-bench.ts";

/** Change of the first frontier when repeated at the end from which a run counts as unstable (case 138). */
export const UNSTABLE_SHARE = 0.1;

/** ds4's columns in ds4's order, then ours. */
const COLUMNS = [
  "ctx_tokens",
  "prefill_tokens",
  "prefill_tps",
  "gen_tokens",
  "gen_tps",
  "gen_first_ms",
  "gen_steady_tokens",
  "gen_steady_tps",
  "kvcache_bytes",
  "ttft_ms",
  "gap_median_ms",
  "gap_max_ms",
  "gen_gbs",
  "bandwidth_share",
  "peak_rss_bytes",
  "plan_bytes",
] as const;

const TABLE_HEADER = [
  "context",
  "prefilled",
  "prefill t/s",
  "first token",
  "gen",
  "gen t/s",
  "median ms",
  "max ms",
  "GB/s",
  "of peak",
  "KV",
];

/** Bytes of weights read per second while decoding, and their share of the measured bandwidth. */
export function decodeBandwidth(
  row: FrontierRow,
  facts: BenchFacts,
): { bytesPerSecond: number; share: number } {
  const bytesPerSecond = row.genTps * facts.weightBytesPerToken;
  return { bytesPerSecond, share: facts.readBandwidth > 0 ? bytesPerSecond / facts.readBandwidth : 0 };
}

/** Comma-separated values with a header line; numbers with at most four decimals. */
export function formatCsv(rows: readonly FrontierRow[], facts: BenchFacts): string {
  const lines = rows.map((row) => {
    const decode = decodeBandwidth(row, facts);
    const values = [
      row.ctxTokens,
      row.prefillTokens,
      row.prefillTps.toFixed(2),
      row.genTokens,
      row.genTps.toFixed(2),
      row.genFirstMs.toFixed(2),
      row.genSteadyTokens,
      row.genSteadyTps.toFixed(2),
      row.kvcacheBytes,
      row.ttftMs.toFixed(2),
      row.gapMedianMs.toFixed(2),
      row.gapMaxMs.toFixed(2),
      (decode.bytesPerSecond / 1e9).toFixed(3),
      decode.share.toFixed(4),
      facts.peakRssBytes,
      facts.planBytes,
    ];
    return values.join(",");
  });
  return [COLUMNS.join(","), ...lines].map((line) => `${line}\n`).join("");
}

/**
 * Reads back the columns that comparison and plots need, ours or ds4's; unknown columns are ignored, missing ones are
 * 0. Throws `usage` when the text has no `ctx_tokens` column.
 */
export function parseCsv(text: string): FrontierRow[] {
  const [header, ...lines] = text.trim().split(/\r?\n/);
  const names = header.split(",");
  if (!names.includes("ctx_tokens")) {
    throw new UsageError(`expected a CSV with a ctx_tokens column, got ${quotedText(header)}`);
  }
  return lines.map((line) => {
    const values = line.split(",");
    const get = (name: string) => Number(values[names.indexOf(name)] ?? 0) || 0;
    return {
      ctxTokens: get("ctx_tokens"),
      prefillTokens: get("prefill_tokens"),
      prefillTps: get("prefill_tps"),
      genTokens: get("gen_tokens"),
      genTps: get("gen_tps"),
      genFirstMs: get("gen_first_ms"),
      genSteadyTokens: get("gen_steady_tokens"),
      genSteadyTps: get("gen_steady_tps"),
      kvcacheBytes: get("kvcache_bytes"),
      ttftMs: get("ttft_ms"),
      gapMedianMs: get("gap_median_ms"),
      gapMaxMs: get("gap_max_ms"),
    };
  });
}

/** Null when the repeated first frontier agrees with the first measurement, else the line that says so. */
export function describeInstability(first: FrontierRow, repeat: FrontierRow): string | null {
  const parts: string[] = [];
  for (const [name, before, after] of [
    ["prefill", first.prefillTps, repeat.prefillTps],
    ["decode", first.genTps, repeat.genTps],
  ] as const) {
    if (before > 0 && Math.abs(after / before - 1) > UNSTABLE_SHARE) {
      const percent = ((after / before - 1) * 100).toFixed(0);
      parts.push(
        `${name} at ${first.ctxTokens} tokens went from ${before.toFixed(2)} to ${after.toFixed(2)} t/s (${percent} %)`,
      );
    }
  }
  if (parts.length === 0) return null;
  return `unstable run: ${parts.join("; ")}. Look for heat, memory pressure or other load before comparing.`;
}

/** The table for people. Figures that are not known (through a server: bandwidth and KV) are dashes. */
export function formatRows(rows: readonly FrontierRow[], facts: BenchFacts): string {
  const known = (value: number, text: string) => (value > 0 ? text : "-");
  const cells = rows.map((row) => {
    const { bytesPerSecond, share } = decodeBandwidth(row, facts);
    return [
      String(row.ctxTokens),
      String(row.prefillTokens),
      known(row.prefillTps, row.prefillTps.toFixed(1)),
      formatSeconds(row.ttftMs / 1000),
      String(row.genTokens),
      known(row.genTps, row.genTps.toFixed(2)),
      known(row.gapMedianMs, row.gapMedianMs.toFixed(1)),
      known(row.gapMaxMs, row.gapMaxMs.toFixed(1)),
      known(bytesPerSecond, (bytesPerSecond / 1e9).toFixed(2)),
      known(share, `${(share * 100).toFixed(0)} %`),
      known(row.kvcacheBytes, formatBytes(row.kvcacheBytes)),
    ];
  });
  return textTable("r".repeat(TABLE_HEADER.length), [TABLE_HEADER, ...cells], { isRuled: true }).join("\n");
}

/** Two runs side by side: rates of B over A at the frontiers that both have. */
export function formatComparison(a: readonly FrontierRow[], b: readonly FrontierRow[]): string {
  const cells: string[][] = [];
  for (const rowA of a) {
    const rowB = b.find((row) => row.ctxTokens === rowA.ctxTokens);
    if (rowB === undefined) continue;
    const ratio = (x: number, y: number) => (x > 0 ? `${(y / x).toFixed(2)}x` : "-");
    cells.push([
      String(rowA.ctxTokens),
      rowA.prefillTps.toFixed(1),
      rowB.prefillTps.toFixed(1),
      ratio(rowA.prefillTps, rowB.prefillTps),
      rowA.genTps.toFixed(2),
      rowB.genTps.toFixed(2),
      ratio(rowA.genTps, rowB.genTps),
    ]);
  }
  if (cells.length === 0) return "the two runs have no frontier in common";
  const header = ["context", "prefill A", "prefill B", "B/A", "gen A", "gen B", "B/A"];
  return textTable("r".repeat(header.length), [header, ...cells], { isRuled: true }).join("\n");
}
