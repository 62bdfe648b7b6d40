// `ds4 convert DIR -o OUT.gguf --recipe R`: an official checkpoint to a GGUF file.
import type { Command } from "commander";
import { convertCheckpoint } from "../convert/convert.ts";
import { ProgressBar } from "./progress-bar.ts";
import { addRecipeFlags, type RecipeFlags, recipeOptions, reportResult } from "./recipe-flags.ts";
import { interruptible } from "./run-context.ts";
import { note, processTerminal, type Terminal } from "./terminal.ts";

/** Flags of the command. */
export interface ConvertFlags extends RecipeFlags {
  output: string;
  name?: string;
}

/** Adds the command to the program. Its action throws what `convertCheckpoint` throws. */
export function registerConvert(program: Command): void {
  const command = program
    .command("convert")
    .description("make a GGUF file from a checkpoint in DeepSeek V4's own layout")
    .argument("<folder>", "folder with config.json, tokenizer.json and .safetensors files")
    .requiredOption("-o, --output <file>", "GGUF file to write")
    .option("--name <text>", "model name to store (default: the folder's)");
  addRecipeFlags(command).action((folder: string, flags: ConvertFlags) =>
    runConvert(folder, flags, processTerminal(flags.quiet === true)),
  );
}

/** Converts with a progress bar; Ctrl+C leaves no file. */
export async function runConvert(folder: string, flags: ConvertFlags, terminal: Terminal): Promise<void> {
  const bar = new ProgressBar(terminal);
  const result = await interruptible((signal) =>
    convertCheckpoint({
      ...recipeOptions(flags),
      ...{ folder, outPath: flags.output, name: flags.name },
      ...{ signal, onProgress: bar.listener },
    }),
  ).finally(() => bar.clear());
  reportResult(terminal, flags, result);
  if (result.skippedDraftTensors > 0) {
    note(terminal, `${result.skippedDraftTensors} tensors of draft blocks (mtp.*) were left out`);
  }
}
