// The picture of one run or of two: prefill and decode rates over context, one panel each since their scales differ.
import type { FrontierRow } from "./frontier-bench.ts";
import { drawLineChart, stackCharts } from "./line-chart.ts";

/** A named run. */
export interface BenchRun {
  name: string;
  rows: readonly FrontierRow[];
}

/** An SVG with a panel for prefill and, where tokens were generated, one for decode. */
export function drawBenchCharts(runs: readonly BenchRun[], heading: string): string {
  const logX = runs.some(({ rows }) => isGeometric(rows));
  const panel = (name: string, value: (row: FrontierRow) => number) =>
    drawLineChart(
      runs.map((run) => ({
        name: run.name,
        points: run.rows.map((row) => ({ x: row.ctxTokens, y: value(row) })),
      })),
      { title: name, xLabel: "context in tokens", yLabel: "tokens per second", logX },
    );
  const panels = [panel("Prefill", (row) => row.prefillTps)];
  if (runs.some(({ rows }) => rows.some((row) => row.genTps > 0))) {
    panels.push(panel("Decode", (row) => row.genTps));
  }
  return stackCharts(panels, heading);
}

// Steps that grow are drawn at equal distances.
function isGeometric(rows: readonly FrontierRow[]): boolean {
  if (rows.length < 3) return false;
  const [first, second, third] = rows.map((row) => row.ctxTokens);
  return third - second > (second - first) * 1.2;
}
