// `ds4 imatrix -m MODEL -f TEXT -o OUT.gguf`: gathers an importance matrix for quantizing.
import { existsSync } from "node:fs";
import { basename } from "node:path";
import { type Command, Option } from "commander";
import { resolveModelPath } from "../api/open-model.ts";
import type { Backend } from "../backend/backend.ts";
import { collectImatrix, expertCoverage, ImatrixCollector } from "../convert/imatrix-collector.ts";
import { writeImatrix } from "../convert/imatrix-file.ts";
import { UsageError } from "../core/errors.ts";
import { formatSeconds } from "../core/units.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import type { BackendChoice } from "../session/engine-protocol.ts";
import { tokenizerFromGguf } from "../tokenizer/gguf-tables.ts";
import { backendOption } from "./backend-flags.ts";
import { integerIn } from "./flag-values.ts";
import { openBackend } from "./open-backend.ts";
import { ProgressBar } from "./progress-bar.ts";
import { interruptible, readTextFile } from "./run-context.ts";
import { note, processTerminal, type Terminal } from "./terminal.ts";

/** Flags of `ds4 imatrix`. */
export interface ImatrixFlags {
  model: string;
  file: string;
  output: string;
  /** Tokens per window. */
  ctx: number;
  /** Tokens per forward call. */
  chunk: number;
  threads?: number;
  backend: BackendChoice;
  force?: boolean;
  quiet?: boolean;
}

/** Long enough that compressed entries and the indexer matter, short enough for many windows. */
const DEFAULT_WINDOW_TOKENS = 4096;
const DEFAULT_CHUNK_TOKENS = 512;
const MAX_CTX_TOKENS = 2 ** 24;

/** Adds the command to the program. Its action throws `usage`, `io`, `gguf`, `convert`, `cancelled` and others. */
export function registerImatrix(program: Command): void {
  program
    .command("imatrix")
    .description("measure which weights matter on a text, for quantizing (an importance matrix)")
    .requiredOption("-m, --model <file>", "GGUF file of the model, as precise as you have it")
    .requiredOption("-f, --file <text>", "UTF-8 text like the model's use; chat marks in it count as such")
    .requiredOption("-o, --output <out>", "GGUF file to write")
    .addOption(
      new Option("--ctx <n>", "tokens read at a time, each time from an empty state")
        .argParser(integerIn(2, MAX_CTX_TOKENS))
        .default(DEFAULT_WINDOW_TOKENS),
    )
    .addOption(
      new Option("--chunk <n>", "tokens per step")
        .argParser(integerIn(1, MAX_CTX_TOKENS))
        .default(DEFAULT_CHUNK_TOKENS),
    )
    .option("-t, --threads <n>", "compute threads (default: chosen by the backend)", integerIn(1, 1024))
    .addOption(backendOption())
    .option("--force", "replace an existing file")
    .option("--quiet", "no progress and no summary")
    .action(async (flags: ImatrixFlags) => {
      await runImatrix(flags, processTerminal(flags.quiet === true));
    });
}

/** Gathers and writes the matrix, with a summary on stderr. Throws `usage` for files that are missing or in the way. */
export async function runImatrix(flags: ImatrixFlags, terminal: Terminal): Promise<void> {
  const { output } = flags;
  if (existsSync(output) && !flags.force) throw new UsageError(`${output} exists; add --force to replace it`);
  const text = readTextFile(flags.file, "--file");
  if (text === "") throw new UsageError(`--file ${flags.file}: expected some text, got none`);
  const file = openGguf(resolveModelPath(flags.model));
  let backend: Backend | undefined;
  const bar = new ProgressBar(terminal);
  try {
    // --force is about the output file here; a model that does not fit is refused.
    const { backend: choice, threads, ctx: ctxTokens } = flags;
    const load = { onProgress: bar.listener };
    const opened = openBackend(file, { backend: choice, threads, ctxTokens }, load);
    backend = opened.backend;
    bar.clear();
    for (const warning of opened.warnings) note(terminal, `warning: ${warning}`);
    await collectAndWrite({ flags, text, file, backend, bar, terminal });
  } finally {
    bar.clear();
    backend?.close();
    file.close();
  }
}

interface ImatrixRun {
  flags: ImatrixFlags;
  text: string;
  file: GgufFile;
  backend: Backend;
  bar: ProgressBar;
  terminal: Terminal;
}

async function collectAndWrite({ flags, text, file, backend, bar, terminal }: ImatrixRun): Promise<void> {
  const tokenizer = tokenizerFromGguf(file);
  const tokens = tokenizer.encode(text, { allowSpecial: true });
  const windowTokens = Math.min(flags.ctx, backend.spec.contextTokens);
  const collector = new ImatrixCollector(file);
  const startMs = performance.now();
  const windowCount = await interruptible((signal) =>
    collectImatrix(backend, collector, {
      tokens,
      bosId: tokenizer.tables.bosId,
      windowTokens,
      chunkTokens: flags.chunk,
      signal,
      onProgress: bar.listener,
    }),
  );
  bar.clear();
  const seconds = (performance.now() - startMs) / 1000;
  const entries = collector.entries();
  writeImatrix(flags.output, entries, {
    datasets: [basename(flags.file)],
    chunkCount: windowCount,
    chunkTokens: windowTokens,
  });
  const rate = (tokens.length / seconds).toFixed(1);
  note(
    terminal,
    `ds4: wrote ${flags.output}: ${entries.length} matrices from ${tokens.length} tokens in ` +
      `${windowCount} ${windowCount === 1 ? "window" : "windows"}, ${formatSeconds(seconds)}, ${rate} t/s`,
  );
  const { expertCount, unseenCount } = expertCoverage(entries);
  if (unseenCount === 0) return;
  note(
    terminal,
    `warning: ${unseenCount} of ${expertCount} experts were never used on this text; a longer or more varied one would help`,
  );
}
