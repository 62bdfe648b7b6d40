// What scripts that measure a model share: its file, the `ds4` command, the driver's version.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const CLI = join(import.meta.dirname, "..", "src", "cli", "ds4.ts");

/** The flags that say which file, for `parseArgs`. */
export const MODEL_OPTIONS = {
  model: { type: "string", short: "m" },
  /** Write a file with random weights first, of this recipe, and measure it. */
  synth: { type: "string" },
  layers: { type: "string" },
  /** Where that file goes. */
  folder: { type: "string", default: tmpdir() },
} as const;

/** Which file: one that is there, or one of random weights that is written first. */
export interface ModelChoice {
  model?: string;
  /** A recipe of `ds4 synth`. */
  synth?: string;
  layers?: string;
  /** Where that file goes. */
  folder: string;
}

/** Runs a command of `ds4`. Its messages are seen; throws when it fails. */
export function ds4(args: readonly string[]): void {
  const child = spawnSync(process.execPath, [CLI, ...args], { stdio: ["ignore", "inherit", "inherit"] });
  if (child.status !== 0) throw new Error(`ds4 ${args.join(" ")} ended with ${child.status ?? child.signal}`);
}

/** Calls `use` with the model's path and a folder for its work; both the folder and a file that was made are gone after. */
export function withModelFile<Result>(
  choice: ModelChoice,
  use: (path: string, work: string) => Result,
): Result {
  const { model, synth, layers, folder } = choice;
  if (model === undefined && synth === undefined) throw new Error("give a file (-m) or a recipe (--synth)");
  const work = mkdtempSync(join(folder, "ds4-cuda-"));
  try {
    const path = model ?? join(work, "random.gguf");
    if (model === undefined) {
      ds4(["synth", path, "--recipe", synth!, ...(layers === undefined ? [] : ["--layers", layers])]);
    }
    return use(path, work);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** The kernel module's version where Linux tells it, and the CUDA version that the driver offers. */
export function driverVersion(cudaVersion: number): string {
  const path = "/proc/driver/nvidia/version";
  const release = existsSync(path) ? /\d+\.\d+(\.\d+)?/.exec(readFileSync(path, "utf8"))?.[0] : undefined;
  return `${release === undefined ? "" : `${release}, `}CUDA ${cudaVersion / 1000}`;
}
