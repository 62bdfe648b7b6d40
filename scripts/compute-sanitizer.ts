// compute-sanitizer around a process that uses CUDA: finding it, its flags, what it found.
import { spawnSync } from "node:child_process";
import { UsageError } from "../src/core/errors.ts";

/** What looks for accesses out of bounds, and for shared memory that is read and written without a barrier between. */
const TOOLS = ["memcheck", "racecheck"];

/**
 * What comes before a command line to run it under the tool that a flag names; COMPUTE_SANITIZER, PATH or the toolkit's usual
 * place say where compute-sanitizer is. Throws `usage` for other tools, and where it is not.
 */
export function sanitizerCommand(tool: string): string[] {
  if (!TOOLS.includes(tool)) {
    throw new UsageError(`--sanitizer: expected ${TOOLS.join(" or ")}, got "${tool}"`);
  }
  const candidates = [
    process.env.COMPUTE_SANITIZER,
    "compute-sanitizer",
    "/usr/local/cuda/bin/compute-sanitizer",
  ];
  const path = candidates.find((each) => each && spawnSync(each, ["--version"]).status === 0);
  if (path === undefined) {
    throw new UsageError(
      "--sanitizer: compute-sanitizer was not found; it comes with the CUDA toolkit: put it on PATH or set COMPUTE_SANITIZER",
    );
  }
  // A kernel is looked up in several images: that one is not found in the first is no error.
  return [path, "--tool", tool, "--report-api-errors", "no"];
}

/** How many errors or hazards the tool counted in what a process printed, null where it did not come to that. */
export function findings(output: string): number | null {
  const summary = /ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard/.exec(output);
  return summary === null ? null : Number(summary[1] ?? summary[2]);
}
