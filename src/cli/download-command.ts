// `ds4 download-model ALIAS|URL` and `download-model`: fetches a model file, after asking whether this machine can hold
// it on disk and in memory.
import { join } from "node:path";
import { Command, InvalidArgumentError } from "commander";
import { isPublishedAlias, type PublishedAlias, publishedModel } from "../convert/published-models.ts";
import { MemoryError, UsageError } from "../core/errors.ts";
import { textTable } from "../core/text-table.ts";
import { formatBytes, formatSeconds } from "../core/units.ts";
import { type DownloadResult, downloadFile } from "../download/download-file.ts";
import { type DownloadTarget, resolveTargets } from "../download/download-target.ts";
import { PUBLISHED_MODELS } from "../download/published-files.ts";
import type { Machine } from "../machine/machine.ts";
import { tightWarning } from "../plan/fit.ts";
import { machineForRun, planRun, refusalOf } from "./preflight.ts";
import { ProgressBar } from "./progress-bar.ts";
import { interruptible } from "./run-context.ts";
import { note, processTerminal, type Terminal } from "./terminal.ts";

/** Flags of the command. */
export interface DownloadFlags {
  output: string;
  sha256?: string;
  list?: boolean;
  force?: boolean;
  quiet?: boolean;
}

/** ds4's former names for files of the same tensor tables. */
const PLANNED_AS: Readonly<Record<string, PublishedAlias>> = {
  "q2-imatrix": "ds4f-q2",
  "q2-q4-imatrix": "ds4f-q2-q4",
  "q4-imatrix": "ds4f-q4",
};

/** The command under the name it is called by. Its action throws what `downloadFile` throws, and `memory`. */
export function downloadCommand(name: string): Command {
  return new Command(name)
    .description("download a model file: resumes, checks disk, memory, size and hash")
    .argument("[model]", "ds4's alias (see --list) or the address of a file; of a split file the first part")
    .option("-o, --output <folder>", "where to put it", "gguf")
    .option("--sha256 <hash>", "what the file's SHA-256 must be", parseSha256)
    .option("--list", "show the aliases and stop")
    .option("--force", "download what does not fit in memory here, and replace an existing file")
    .option("--quiet", "no progress and no notes")
    .action(async (model: string | undefined, flags: DownloadFlags) => {
      await runDownload(model, flags, processTerminal(flags.quiet === true));
    });
}

/** Adds the command to the program. */
export function registerDownload(program: Command): void {
  program.addCommand(downloadCommand("download-model"));
}

/** Downloads all files of the model. Ctrl+C keeps what has arrived. Throws `usage` for an unknown alias. */
export async function runDownload(
  model: string | undefined,
  flags: DownloadFlags,
  terminal: Terminal,
  machine: Machine = machineForRun(),
): Promise<void> {
  if (flags.list) {
    terminal.out.write(`${listText()}\n`);
    return;
  }
  if (model === undefined) throw new UsageError("expected an alias or an address; --list shows the aliases");
  const targets = resolveTargets(model, flags.sha256);
  checkPlan(model, flags, terminal, machine);
  for (const [index, target] of targets.entries()) {
    if (targets.length > 1) note(terminal, `ds4: file ${index + 1} of ${targets.length}: ${target.fileName}`);
    await downloadOne(target, flags, terminal);
  }
  note(terminal, `ds4: run it with: ds4 -m ${join(flags.output, targets[0].fileName)}`);
}

async function downloadOne(target: DownloadTarget, flags: DownloadFlags, terminal: Terminal): Promise<void> {
  const bar = new ProgressBar(terminal);
  const startMs = performance.now();
  const onRetry = (line: string) => {
    bar.clear();
    note(terminal, `warning: ${line}`);
  };
  const options = { folder: flags.output, force: flags.force, onRetry, onProgress: bar.listener };
  const result = await interruptible((signal) => downloadFile(target, { ...options, signal })).finally(() =>
    bar.clear(),
  );
  note(terminal, `ds4: ${describeResult(result, (performance.now() - startMs) / 1000)}`);
}

function describeResult(result: DownloadResult, seconds: number): string {
  const { path, sizeBytes, sha256, isHashVerified, resumedBytes, wasThere } = result;
  if (wasThere) return `${path} is there already, ${formatBytes(sizeBytes)}; --force downloads it again`;
  const rate = `${formatBytes((sizeBytes - resumedBytes) / seconds)}/s`;
  const resumed = resumedBytes > 0 ? `, ${formatBytes(resumedBytes)} of it from an earlier run` : "";
  const hash = isHashVerified ? "SHA-256 verified" : `SHA-256 ${sha256}, with nothing to compare it to`;
  return `wrote ${path}: ${formatBytes(sizeBytes)} in ${formatSeconds(seconds)}, ${rate}${resumed}; ${hash}`;
}

// Hours of download for a file that cannot be loaded are worth a question first.
function checkPlan(alias: string, flags: DownloadFlags, terminal: Terminal, machine: Machine): void {
  const name = PLANNED_AS[alias] ?? alias;
  if (!isPublishedAlias(name)) return;
  const run = planRun({ name: alias, model: publishedModel(name) }, { backend: "cpu" }, machine);
  const { plan, fit } = run;
  if (fit.verdict === "fits") return;
  if (fit.verdict === "tight") {
    note(terminal, `warning: ${tightWarning(plan, fit)}`);
    return;
  }
  const error = refusalOf(run);
  if (flags.force) {
    note(terminal, `warning: ${error.message.split("\n")[0]}; downloading it anyway`);
    return;
  }
  const message = `${error.message}\n  --force downloads it anyway`;
  throw new MemoryError(message, error.neededBytes, error.availableBytes);
}

function listText(): string {
  const rows = PUBLISHED_MODELS.map(({ alias, description, files }) => {
    const isKnown = files.every((file) => file.sizeBytes !== undefined);
    const size = isKnown ? formatBytes(files.reduce((sum, file) => sum + file.sizeBytes!, 0)) : "?";
    return [alias, size, description];
  });
  return textTable("lrl", rows).join("\n");
}

function parseSha256(text: string): string {
  if (!/^[0-9a-fA-F]{64}$/.test(text)) throw new InvalidArgumentError("Expected 64 hexadecimal digits.");
  return text.toLowerCase();
}
