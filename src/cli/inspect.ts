// `ds4 inspect FILE`: what a GGUF file holds, from its header alone. Loads no weights.
import type { Writable } from "node:stream";
import type { Command } from "commander";
import { openGguf } from "../gguf/open-gguf.ts";
import { inspectReport } from "./inspect-report.ts";
import { formatInspect, inspectJson } from "./inspect-text.ts";

export { inspectReport } from "./inspect-report.ts";
export { formatInspect } from "./inspect-text.ts";

/** How much is shown, and how. */
export interface InspectFlags {
  json?: boolean;
  tensors?: boolean;
}

/** Adds the command to the program. Its action throws `io` or `gguf` for a file that cannot be read. */
export function registerInspect(program: Command): void {
  program
    .command("inspect")
    .description("show the metadata, tensors and sizes of a GGUF file")
    .argument("<file>", "GGUF file; of a split file any part")
    .option("--json", "write everything as JSON, arrays in full")
    .option("--tensors", "list every tensor (always part of the JSON)")
    .action((path: string, flags: InspectFlags) => {
      inspectFile(path, flags, process.stdout);
    });
}

/** Writes the description of a file to `out`; returns 0. Throws `io` or `gguf`. */
export function inspectFile(path: string, flags: InspectFlags, out: Writable): number {
  const file = openGguf(path);
  try {
    const report = inspectReport(file);
    out.write(flags.json ? `${inspectJson(report)}\n` : formatInspect(report, { tensors: flags.tensors }));
    return 0;
  } finally {
    file.close();
  }
}
