// `ds4 bench --http URL`: the same sweep through a server. The model file gives the tokenizer alone, for prompts of a
// known length.

import { openModel, resolveModelPath } from "../api/open-model.ts";
import type { FrontierRow } from "../bench/frontier-bench.ts";
import { openServer, runHttpBench } from "../bench/http-bench.ts";
import { CancelledError } from "../core/errors.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { machineFacts } from "./bench-facts-probe.ts";
import { type BenchFlags, sweepSettings } from "./bench-flags.ts";
import { writeOutcome } from "./bench-output.ts";
import { benchTokens } from "./bench-prompt.ts";
import { ProgressBar } from "./progress-bar.ts";
import { interruptible } from "./run-context.ts";
import type { Terminal } from "./terminal.ts";

/** A server does not say what it holds; the last context is the user's to choose. */
const ASSUMED_CTX_TOKENS = 1 << 24;

/** Runs the sweep and writes the outcome; what was measured before Ctrl+C is written too. */
export async function benchServer(
  url: string,
  flags: BenchFlags,
  terminal: Terminal,
  argv: readonly string[],
) {
  const facts = machineFacts(argv);
  const { tokenizer } = openModel(resolveModelPath(flags.model));
  const sweep = sweepSettings(flags, ASSUMED_CTX_TOKENS);
  const tokens = benchTokens(tokenizer, flags, sweep.ctxMax);
  const bar = new ProgressBar(terminal);
  const rows: FrontierRow[] = [];
  let repeat: FrontierRow | undefined;
  let cancelled: CancelledError | undefined;
  try {
    await interruptible(async (signal) => {
      const server = await openServer(url, signal);
      facts.backend = `http ${server.baseUrl.host}`;
      facts.backendDescription = server.software;
      facts.modelFile = server.model;
      const onRow = (row: FrontierRow) => rows.push(row);
      const makePrompt = (count: number, variant: number) => promptText(tokenizer, tokens, count, variant);
      const options = { ...sweep, makePrompt, onRow, onProgress: bar.listener, signal };
      ({ repeat } = await runHttpBench(server, options));
    });
  } catch (error) {
    if (!(error instanceof CancelledError) || rows.length === 0) throw error;
    cancelled = error;
  } finally {
    bar.clear();
  }
  writeOutcome({ rows, repeat, facts }, flags, terminal);
  if (cancelled !== undefined) throw cancelled;
}

// A line that no earlier run has sent comes first: a prefix cache finds nothing.
function promptText(tokenizer: Tokenizer, tokens: Int32Array, count: number, variant: number): string {
  const head = tokenizer.encode(`${variant}-${performance.timeOrigin.toFixed(0)}. `).subarray(0, count);
  const ids = new Int32Array(count);
  ids.set(head);
  ids.set(tokens.subarray(0, count - head.length), head.length);
  return tokenizer.decode(ids);
}
