// `ds4 synth OUT.gguf`: a file of a known shape with random weights, to measure and test with.
import { existsSync } from "node:fs";
import { type Command, Option } from "commander";
import { firstLayers, SHAPE_NAMES, type ShapeName, shapeSpec } from "../convert/model-shape.ts";
import { RECIPES, type Recipe } from "../convert/recipe.ts";
import { synthesize } from "../convert/synthesize.ts";
import { UsageError } from "../core/errors.ts";
import { formatBytes, formatSeconds } from "../core/units.ts";
import { integerIn, parseSeed } from "./flag-values.ts";
import { ProgressBar } from "./progress-bar.ts";
import { interruptible } from "./run-context.ts";
import { note, processTerminal, type Terminal } from "./terminal.ts";

/** Flags of `ds4 synth`. */
export interface SynthFlags {
  shape: ShapeName;
  recipe: Recipe;
  /** Default: all layers of the shape. */
  layers?: number;
  seed: bigint;
  sparse?: boolean;
  force?: boolean;
  quiet?: boolean;
}

/** Draft blocks that published files of a shape mention without holding them. */
const DRAFT_LAYERS: Readonly<Record<ShapeName, number>> = { flash: 1, nano: 0 };
const MOST_LAYERS = Math.max(...SHAPE_NAMES.map((name) => shapeSpec(name).layerCount));

/** Adds the command to the program. Its action throws `usage`, `io` or `cancelled`. */
export function registerSynth(program: Command): void {
  program
    .command("synth")
    .description("write a model file of a known shape with random weights, for tests and measurements")
    .argument("<out>", "GGUF file to write")
    .addOption(new Option("--shape <name>", "whose dimensions").choices(SHAPE_NAMES).default("flash"))
    .addOption(new Option("--recipe <name>", "tensor types").choices(RECIPES).default("q2"))
    .option("--layers <n>", "only the first layers", integerIn(1, MOST_LAYERS))
    .addOption(new Option("--seed <n>", "seed of the random weights").argParser(parseSeed).default(1n, "1"))
    .option("--sparse", "write the header only; the weights are holes")
    .option("--force", "replace an existing file")
    .option("--quiet", "no progress and no summary")
    .action(async (path: string, flags: SynthFlags) => {
      await runSynth(path, flags, processTerminal(flags.quiet === true));
    });
}

/** Writes the file and a summary line to stderr. Throws `usage` when the file exists or has too many layers. */
export async function runSynth(path: string, flags: SynthFlags, terminal: Terminal): Promise<void> {
  const whole = shapeSpec(flags.shape);
  const layerCount = flags.layers ?? whole.layerCount;
  if (layerCount > whole.layerCount) {
    throw new UsageError(
      `--layers: the shape ${flags.shape} has 1..${whole.layerCount} layers, got ${layerCount}`,
    );
  }
  if (existsSync(path) && !flags.force) throw new UsageError(`${path} exists; add --force to replace it`);
  const cut = layerCount < whole.layerCount ? `, first ${layerCount} of ${whole.layerCount} layers` : "";
  const spec = { ...firstLayers(whole, layerCount), name: `${whole.name}, random weights${cut}` };
  const bar = new ProgressBar(terminal);
  const startMs = performance.now();
  const { fileBytes, tensorCount } = await interruptible((signal) =>
    synthesize(path, {
      spec,
      recipe: flags.recipe,
      seed: flags.seed,
      draftLayerCount: DRAFT_LAYERS[flags.shape],
      sparse: flags.sparse,
      signal,
      onProgress: bar.listener,
    }),
  ).finally(() => bar.clear());
  const seconds = (performance.now() - startMs) / 1000;
  const rate = flags.sparse ? "without weights" : `${formatBytes(fileBytes / seconds)}/s`;
  note(
    terminal,
    `ds4: wrote ${path}: ${tensorCount} tensors, ${formatBytes(fileBytes)} in ${formatSeconds(seconds)}, ${rate}`,
  );
}
