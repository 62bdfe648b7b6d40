// Where a run's figures go: tables and facts for people, CSV, JSON and SVG for programs. Standard output carries one
// of them alone, so that it can be piped; what people read then goes to stderr.
import { writeFileSync } from "node:fs";
import { basename } from "node:path";
import { drawBenchCharts } from "../bench/bench-charts.ts";
import { type BenchFacts, formatFacts } from "../bench/bench-facts.ts";
import { decodeBandwidth, describeInstability, formatCsv, formatRows } from "../bench/bench-report.ts";
import type { FrontierRow } from "../bench/frontier-bench.ts";
import { Ds4Error } from "../core/errors.ts";
import type { BenchFlags } from "./bench-flags.ts";
import type { Terminal } from "./terminal.ts";

/** What was measured, complete or not. */
export interface BenchOutcome {
  rows: readonly FrontierRow[];
  /** The first row measured again; undefined when the run was stopped before. */
  repeat: FrontierRow | undefined;
  facts: BenchFacts;
}

/** Writes everything that the flags ask for. Throws `io` when a file cannot be written. */
export function writeOutcome(outcome: BenchOutcome, flags: BenchFlags, terminal: Terminal): void {
  const { rows, repeat, facts } = outcome;
  const unstable = repeat === undefined ? null : describeInstability(rows[0], repeat);
  const isMachineReadable = flags.json === true || flags.csv === "-";
  const people = isMachineReadable ? terminal.err : terminal.out;
  if (!(isMachineReadable && terminal.quiet)) {
    const parts = [formatRows(rows, facts), formatFacts(facts)];
    if (repeat === undefined) parts.push("stopped early: the first context was not measured again");
    if (unstable !== null) parts.push(unstable);
    people.write(`${parts.join("\n\n")}\n`);
  }
  const csv = formatCsv(rows, facts);
  if (flags.csv === "-") terminal.out.write(csv);
  else if (flags.csv !== undefined) writeFileOrThrow(flags.csv, csv);
  if (flags.json) terminal.out.write(`${JSON.stringify(toDocument(outcome, unstable), null, 2)}\n`);
  if (flags.svg !== undefined) {
    const name = basename(facts.modelFile);
    writeFileOrThrow(flags.svg, drawBenchCharts([{ name, rows }], `${name}, ${facts.backend}`));
  }
}

/** Writes a small text file. Throws `io`. */
export function writeFileOrThrow(path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch (error) {
    throw new Ds4Error("io", `cannot write ${path}: ${(error as Error).message}`, { cause: error });
  }
}

function toDocument({ rows, repeat, facts }: BenchOutcome, unstable: string | null) {
  const withBandwidth = rows.map((row) => {
    const { bytesPerSecond, share } = decodeBandwidth(row, facts);
    return { ...row, genBytesPerSecond: bytesPerSecond, bandwidthShare: share };
  });
  return { facts, rows: withBandwidth, repeat: repeat ?? null, unstable };
}
