// Who dies when memory runs out. A model is most of the machine's memory: the process that holds it should be ended
// by the kernel before any other program of the user.
import { readFileSync, writeFileSync } from "node:fs";

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
