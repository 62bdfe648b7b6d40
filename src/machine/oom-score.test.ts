import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { raiseOomScore } from "./oom-score.ts";

test("raises, never lowers, and does without", () => {
  const folder = mkdtempSync(join(tmpdir(), "ds4-oom-score-"));
  const path = join(folder, "oom_score_adj");
  writeFileSync(path, "0\n");
  expect(raiseOomScore(path)).toBe(500);
  expect(readFileSync(path, "utf8")).toBe("500");
  writeFileSync(path, "800\n");
  expect(raiseOomScore(path)).toBe(800);
  expect(readFileSync(path, "utf8")).toBe("800\n");
  expect(raiseOomScore(join(folder, "missing"))).toBeUndefined();
  rmSync(folder, { recursive: true });
});

test.skipIf(process.platform !== "linux")("the kernel takes it", () => {
  const module = join(import.meta.dirname, "oom-score.ts");
  const code = `import { raiseOomScore } from ${JSON.stringify(module)}; import { readFileSync } from "node:fs";
    console.log(raiseOomScore(), Number(readFileSync("/proc/self/oom_score_adj", "utf8")));`;
  const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", code], { encoding: "utf8" });
  const [returned, found] = stdout.trim().split(" ").map(Number);
  expect(found).toBeGreaterThanOrEqual(500);
  expect(returned).toBe(found);
});
