// What `convert` and `quantize` have in common on the command line: recipe, importance matrix, threads, and how the
// result is told.
import { availableParallelism } from "node:os";
import { type Command, Option } from "commander";
import type { RecipeOptions } from "../convert/convert.ts";
import { describeRecipe, RECIPES, type Recipe } from "../convert/recipe.ts";
import type { WriteResult } from "../convert/write-tensors.ts";
import { formatBytes, formatSeconds } from "../core/units.ts";
import { integerIn } from "./flag-values.ts";
import { note, type Terminal } from "./terminal.ts";

const MAX_THREADS = 1024;
const MAX_LAYERS = 1024;

/** The common flags as parsed. */
export interface RecipeFlags {
  recipe: Recipe;
  q4Layers?: number;
  imatrix?: string;
  threads?: number;
  force?: boolean;
  quiet?: boolean;
}

/** Adds the common flags. */
export function addRecipeFlags(command: Command): Command {
  const help = RECIPES.map((name) => `  ${name.padEnd(6)} ${describeRecipe(name)}`).join("\n");
  return command
    .addOption(
      new Option("--recipe <name>", "which tensor types to store, see below")
        .choices(RECIPES)
        .makeOptionMandatory(),
    )
    .option("--q4-layers <n>", "last layers in Q4_K under q2-q4 (default: 6 of 43)", integerIn(0, MAX_LAYERS))
    .option("--imatrix <file>", "importance matrix from `ds4 imatrix` or llama.cpp")
    .option("--threads <n>", "threads of the encoders (default: all cores)", integerIn(1, MAX_THREADS))
    .option("--force", "replace an existing output file")
    .option("--quiet", "no progress, no summary")
    .addHelpText("after", `\nRecipes:\n${help}`);
}

/** The library's options from the flags. */
export function recipeOptions(flags: RecipeFlags): RecipeOptions {
  const { recipe, q4Layers, imatrix: imatrixPath, threads = availableParallelism(), force } = flags;
  return { recipe, q4Layers, imatrixPath, threads, force };
}

/** Tells what was written, on stderr. */
export function reportResult(
  terminal: Terminal,
  flags: RecipeFlags,
  result: WriteResult & { fallbacks: readonly string[] },
): void {
  const types = [...result.typeBytes].map(([type, bytes]) => `${type} ${formatBytes(bytes)}`).join(", ");
  note(
    terminal,
    `${result.path}: ${result.tensorCount} tensors, ${formatBytes(result.fileBytes)} in ${formatSeconds(result.seconds)} (${types})`,
  );
  if (flags.imatrix !== undefined) {
    note(terminal, `the importance matrix was used for ${result.importanceTensors} tensors`);
  } else if (flags.recipe.startsWith("q2")) {
    note(terminal, "warning: 2-bit experts are closer to the original with --imatrix");
  }
  if (result.fallbacks.length > 0) {
    note(terminal, `other types for rows that do not fit: ${result.fallbacks.slice(0, 3).join("; ")}`);
    if (result.fallbacks.length > 3) note(terminal, `  and ${result.fallbacks.length - 3} more`);
  }
}
