// Who dies when memory runs out. A model is most of the machine's memory: the process that holds it should be ended
// by the kernel before any other program of the user.

import { readFileSync, writeFileSync } from "node:fs";
import { GIB } from "../core/units.ts";

/** Above every ordinary process (0) and a desktop's own adjustments (up to 200), below the highest (1000). */
const OOM_SCORE_ADJ = 500;
const PATH = "/proc/self/oom_score_adj";

/**
 * Raises this process's `oom_score_adj` to 500; never lowers it. Returns the value in force, or undefined where there
 * is none (not Linux) or it may not be written. Children inherit it.
 */
export function raiseOomScore(path = PATH): number | undefined {
  try {
    const current = Number(readFileSync(path, "utf8"));
    if (current >= OOM_SCORE_ADJ) return current;
    writeFileSync(path, String(OOM_SCORE_ADJ));
    return OOM_SCORE_ADJ;
  } catch {
    return undefined;
  }
}

/** Models from this size on are worth ending before anything else; below it nobody runs out of memory by them. */
const OOM_SCORE_FROM_BYTES = GIB;

/** `raiseOomScore` for processes that load a model of 1 GiB or more; undefined for smaller ones. */
export function raiseOomScoreFor(modelBytes: number): number | undefined {
  return modelBytes >= OOM_SCORE_FROM_BYTES ? raiseOomScore() : undefined;
}

/** What to tell the user of the score. */
export function oomScoreText(score: number): string {
  return `should memory run out, this process is ended first (oom_score_adj ${score})`;
}
