// V8's heap in a server: left alone it takes what is free. Its young generation grows with the load up to 128 MiB a thread,
// and its old one is only collected when it has doubled, so that a busy server moves by hundreds of MiB that no plan
// counts. Measured in bench-results/2026-12-02-load.md.
import { setFlagsFromString } from "node:v8";

/**
 * Both are read by V8 whenever it decides how far to grow, not only at its start, so they hold for a thread that runs
 * already. A young generation of its first size is collected more often, but each time less: processor time per
 * streamed token is the same.
 */
const FLAGS = ["--semi-space-growth-factor=1", "--heap-growing-percent=30"];
/** Who asks for a size of the young generation gets it. */
const CHOSEN_BY_USER = /--(max|min)-semi-space-size/;

/**
 * Keeps the heaps of this thread and of threads started later near what they hold. Called before anything large is
 * loaded: what has grown stays. Does nothing when Node's own flags size the young generation.
 */
export function keepHeapSteady(
  nodeFlags: readonly string[] = [...process.execArgv, process.env.NODE_OPTIONS ?? ""],
): void {
  if (nodeFlags.some((flag) => CHOSEN_BY_USER.test(flag))) return;
  for (const flag of FLAGS) setFlagsFromString(flag);
}
