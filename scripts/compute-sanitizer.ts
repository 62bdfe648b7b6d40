// compute-sanitizer around a process that uses CUDA: finding it, its flags, what it found.
import { spawnSync } from "node:child_process";
import { UsageError } from "../src/core/errors.ts";

/** What looks for accesses out of bounds, and for shared memory that is read and written without a barrier between. */
export const SANITIZERS = ["memcheck", "racecheck"] as const;
export type Sanitizer = (typeof SANITIZERS)[number];

/** The tool named by a flag. Throws `usage`. */
export function sanitizerOf(name: string): Sanitizer {
  const found = SANITIZERS.find((each) => each === name);
  if (found !== undefined) return found;
  throw new UsageError(`--sanitizer: expected ${SANITIZERS.join(" or ")}, got "${name}"`);
}

/**
 * The command line that runs `command` under the tool; COMPUTE_SANITIZER, PATH or the toolkit's usual place say where it is.
 * Throws `usage` where it is not.
 */
export function sanitized(tool: Sanitizer, command: readonly string[]): string[] {
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
  return [path, "--tool", tool, "--report-api-errors", "no", ...command];
}

/** How many errors or hazards the tool counted in what a process printed, null where it did not come to that. */
export function findings(output: string): number | null {
  const summary = /ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard/.exec(output);
  return summary === null ? null : Number(summary[1] ?? summary[2]);
}
