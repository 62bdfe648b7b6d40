// `ds4 bench` and `ds4-bench`: speed over context, of a model file, of a server, or of two earlier runs.
import { readFileSync } from "node:fs";
import { Command } from "commander";
import { drawBenchCharts } from "../bench/bench-charts.ts";
import { formatComparison, parseCsv } from "../bench/bench-report.ts";
import { UsageError } from "../core/errors.ts";
import { addBenchFlags, type BenchFlags } from "./bench-flags.ts";
import { benchServer } from "./bench-http.ts";
import { benchLocally } from "./bench-local.ts";
import { writeFileOrThrow } from "./bench-output.ts";
import { processTerminal, type Terminal } from "./terminal.ts";

/** The command under the name it is called by. Its action throws `usage`, `cancelled` and what loading throws. */
export function benchCommand(name: string): Command {
  const command = new Command(name).description(
    "measure prefill and decode speed over context: one load, each step timed alone, the first repeated at the end",
  );
  return addBenchFlags(command).action(async (flags: BenchFlags) => {
    await runBench(flags, processTerminal(flags.quiet === true), process.argv);
  });
}

/** Adds the command to the program. */
export function registerBench(program: Command): void {
  program.addCommand(benchCommand("bench"));
}

/** Runs what the flags ask for. `argv` is shown in the block of facts. */
export async function runBench(
  flags: BenchFlags,
  terminal: Terminal,
  argv: readonly string[],
): Promise<void> {
  if (flags.json && flags.csv === "-") throw new UsageError("--json and --csv - both want standard output");
  if (flags.compare !== undefined) return compareRuns(flags.compare, flags, terminal);
  if (flags.http !== undefined && flags.randomPrompt) {
    throw new UsageError("--random-prompt: a server takes text; leave it out, or give --prompt-file");
  }
  if (flags.http !== undefined) return benchServer(flags.http, flags, terminal, argv);
  return benchLocally(flags, terminal, argv);
}

function compareRuns(paths: readonly string[], flags: BenchFlags, terminal: Terminal): void {
  if (paths.length !== 2) throw new UsageError(`--compare: expected two CSV files, got ${paths.length}`);
  const runs = paths.map((path) => ({ name: path, rows: parseCsv(readCsv(path)) }));
  const [a, b] = runs;
  if (flags.json) terminal.out.write(`${JSON.stringify({ a, b }, null, 2)}\n`);
  else terminal.out.write(`A ${a.name}\nB ${b.name}\n\n${formatComparison(a.rows, b.rows)}\n`);
  if (flags.svg !== undefined) writeFileOrThrow(flags.svg, drawBenchCharts(runs, `${a.name} and ${b.name}`));
}

function readCsv(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new UsageError(`--compare ${path}: ${(error as Error).message}`);
  }
}
