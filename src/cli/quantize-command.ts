// `ds4 quantize IN.gguf OUT.gguf --recipe R`: the same model in other tensor types.
import { type Command, InvalidArgumentError } from "commander";
import { parseTypeOverride, quantizeGguf, type TypeOverride } from "../convert/quantize.ts";
import { Ds4Error } from "../core/errors.ts";
import { ProgressBar } from "./progress-bar.ts";
import { addRecipeFlags, type RecipeFlags, recipeOptions, reportResult } from "./recipe-flags.ts";
import { interruptible } from "./run-context.ts";
import { note, processTerminal, type Terminal } from "./terminal.ts";

/** Flags of the command. */
export interface QuantizeFlags extends RecipeFlags {
  tensorType?: TypeOverride[];
}

/** Adds the command to the program. Its action throws what `quantizeGguf` throws. */
export function registerQuantize(program: Command): void {
  const command = program
    .command("quantize")
    .description("store a GGUF model in other tensor types")
    .argument("<input>", "GGUF file; of a split file any part")
    .argument("<output>", "GGUF file to write")
    .option(
      "--tensor-type <name=type>",
      "type of one tensor; * in the name matches any text; repeatable",
      collectType,
    );
  addRecipeFlags(command).action((input: string, output: string, flags: QuantizeFlags) =>
    runQuantize(input, output, flags, processTerminal(flags.quiet === true)),
  );
}

/** Quantizes with a progress bar; Ctrl+C leaves no file. */
export async function runQuantize(
  inPath: string,
  outPath: string,
  flags: QuantizeFlags,
  terminal: Terminal,
): Promise<void> {
  const bar = new ProgressBar(terminal);
  const result = await interruptible((signal) =>
    quantizeGguf({
      ...recipeOptions(flags),
      ...{ inPath, outPath, overrides: flags.tensorType },
      ...{ signal, onProgress: bar.listener },
    }),
  ).finally(() => bar.clear());
  reportResult(terminal, flags, result);
  if (result.requantizedTensors > 0) {
    note(
      terminal,
      `warning: ${result.requantizedTensors} tensors were quantized before and lost twice; start from mxfp4 or f32 if you can`,
    );
  }
}

function collectType(text: string, previous: TypeOverride[] = []): TypeOverride[] {
  try {
    return [...previous, parseTypeOverride(text)];
  } catch (error) {
    if (error instanceof Ds4Error) throw new InvalidArgumentError(error.message);
    throw error;
  }
}
