// The model in the package: made by the documented command, and what `npm start` answers with.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { loadNative } from "../../src/backend/native.ts";

const root = join(import.meta.dirname, "..", "..");
const scratch = mkdtempSync(join(tmpdir(), "ds4-bundled-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

function ds4(...argv: string[]) {
  return spawnSync(process.execPath, ["src/cli/ds4.ts", ...argv], { cwd: root, encoding: "utf8" });
}

function digest(path: string): string {
  return createHash("sha256").update(readFileSync(path)).digest("hex");
}

describe("bundled model", () => {
  test("answers the README's question", () => {
    const { stdout, status, stderr } = ds4(
      "-p",
      "What is the capital of France?",
      "--nothink",
      "--temp",
      "0",
      "--quiet",
    );
    expect(stderr).toBe("");
    expect(stdout).toContain("Paris");
    expect(status).toBe(0);
  });

  // Without the addon the TypeScript encoders give other ties and take minutes.
  test.skipIf(loadNative().addon === null)("is what the command in models/README.md makes", () => {
    const again = join(scratch, "again.gguf");
    const checkpoint = join("models", "nano");
    const imatrix = join(checkpoint, "imatrix.gguf");
    const { status, stderr } = ds4(
      ...["convert", checkpoint, "-o", again, "--recipe", "q2-q4", "--imatrix", imatrix, "--quiet"],
    );
    expect(stderr).toBe("");
    expect(status).toBe(0);
    expect(digest(again)).toBe(digest(join(root, "models", "nano-q2-q4.gguf")));
  });
});
