// The flags of `ds4 bench`: names and defaults follow ds4-bench's.
import type { Command } from "commander";
import { listFrontiers } from "../bench/frontier-bench.ts";
import { UsageError } from "../core/errors.ts";
import type { KvType } from "../core/kv-type.ts";
import type { BackendChoice } from "../session/engine-protocol.ts";
import { backendOption, kvTypeOption } from "./backend-flags.ts";
import { integerIn, numberIn } from "./flag-values.ts";

/** What commander collects. */
export interface BenchFlags {
  model?: string;
  promptFile?: string;
  randomPrompt?: boolean;
  ctxStart?: number;
  ctxMax?: number;
  ctxAlloc?: number;
  stepIncr: number;
  stepMul: number;
  genTokens: number;
  csv?: string;
  json?: boolean;
  svg?: string;
  compare?: string[];
  http?: string;
  threads?: number;
  prefillChunk?: number;
  backend: BackendChoice;
  kvType?: KvType;
  force?: boolean;
  quiet?: boolean;
}

/** The sweep that the flags ask for. */
export interface SweepSettings {
  ctxStart: number;
  ctxMax: number;
  stepIncr: number;
  stepMul: number;
  genTokens: number;
  /** Context to allocate. */
  allocTokens: number;
}

const MAX_CTX_TOKENS = 1 << 24;
const MAX_GEN_TOKENS = 100_000;
const DEFAULTS = { ctxStart: 2048, ctxMax: 32768, stepIncr: 2048, genTokens: 128 };

/** Adds the flags. */
export function addBenchFlags(command: Command): Command {
  const tokens = integerIn(1, MAX_CTX_TOKENS);
  const generated = integerIn(0, MAX_GEN_TOKENS);
  return command
    .option("-m, --model <file>", "GGUF file (default: the bundled nano model)")
    .option("--prompt-file <file>", "text to evaluate (default: a bundled one, repeated as often as needed)")
    .option("--random-prompt", "evaluate random tokens: for files of random weights, whose words are bytes")
    .option("--ctx-start <n>", `first context (default: ${DEFAULTS.ctxStart})`, tokens)
    .option("--ctx-max <n>", `last context (default: ${DEFAULTS.ctxMax}, at most the model's)`, tokens)
    .option("--ctx-alloc <n>", "context to allocate (default: what the sweep needs)", tokens)
    .option("--step-incr <n>", "distance of the contexts", tokens, DEFAULTS.stepIncr)
    .option(
      "--step-mul <f>",
      "factor between contexts; 1 takes --step-incr",
      numberIn({ min: 1, max: 1024, integer: false }),
      1,
    )
    .option(
      "-n, --gen-tokens <n>",
      "tokens to generate at each context, 0 is none",
      generated,
      DEFAULTS.genTokens,
    )
    .option("--csv <file>", "write ds4's columns and more (- is standard output)")
    .option("--json", "print facts and rows as one JSON document")
    .option("--svg <file>", "draw the rates over context")
    .option("--compare <csv...>", "compare two CSV files, ours or ds4's, instead of measuring")
    .option("--http <url>", "measure a server's /v1/completions instead; -m gives the tokenizer")
    .option("-t, --threads <n>", "compute threads (default: chosen by the backend)", integerIn(1, 1024))
    .option("--prefill-chunk <n>", "prompt tokens per pass (default: the backend's most)", tokens)
    .addOption(backendOption())
    .addOption(kvTypeOption())
    .option("--force", "load although the plan says that it does not fit in memory")
    .option("--quiet", "no progress and no notes");
}

/**
 * The sweep within what the model can hold; defaults shrink to it. Throws `usage` when a context that was asked for
 * does not fit, or when the model has no room to generate.
 */
export function sweepSettings(flags: BenchFlags, contextTokens: number): SweepSettings {
  const { stepIncr, stepMul, genTokens } = flags;
  const mostTokens = contextTokens - genTokens - 1;
  if (mostTokens < 1) {
    throw new UsageError(
      `--gen-tokens: this model holds ${contextTokens} tokens, got ${genTokens} to generate`,
    );
  }
  const ctxMax = flags.ctxMax ?? Math.max(flags.ctxStart ?? 1, Math.min(DEFAULTS.ctxMax, mostTokens));
  if (ctxMax > mostTokens) {
    throw new UsageError(
      `--ctx-max: expected at most ${mostTokens} (the model holds ${contextTokens} tokens, ${genTokens} are generated), got ${ctxMax}`,
    );
  }
  const neededTokens = ctxMax + genTokens + 1;
  const allocTokens = flags.ctxAlloc ?? neededTokens;
  if (allocTokens < neededTokens || allocTokens > contextTokens) {
    throw new UsageError(`--ctx-alloc: expected ${neededTokens}..${contextTokens}, got ${allocTokens}`);
  }
  const ctxStart = flags.ctxStart ?? Math.min(DEFAULTS.ctxStart, ctxMax);
  const settings = { ctxStart, ctxMax, stepIncr, stepMul, genTokens, allocTokens };
  listFrontiers(settings);
  return settings;
}
