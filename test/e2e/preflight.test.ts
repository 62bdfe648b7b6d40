// Commands that load a model, on a file that fits nowhere: V4-Flash in float32, about a terabyte of holes.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { loadNative } from "../../src/backend/native.ts";
import { shapeSpec } from "../../src/convert/model-shape.ts";
import { synthesize } from "../../src/convert/synthesize.ts";

const root = join(import.meta.dirname, "..", "..");
const folder = mkdtempSync(join(tmpdir(), "ds4-preflight-"));
const huge = join(folder, "huge.gguf");
const text = join(folder, "text.txt");
afterAll(() => rmSync(folder, { recursive: true, force: true }));
beforeAll(async () => {
  await synthesize(huge, { spec: shapeSpec("flash"), recipe: "f32", seed: 1, sparse: true });
  writeFileSync(text, "some words to measure with, more than thirty-two tokens of them. ".repeat(20));
});

const { addon, reason } = loadNative();

function run(argv: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["src/cli/ds4.ts", ...argv], {
    cwd: root,
    encoding: "utf8",
    timeout: 30_000,
  });
  return { status, stdout, stderr };
}

describe.skipIf(addon === null)(`a model that does not fit ${reason ?? ""}`, () => {
  it.each([
    ["an answer", ["-m", huge, "-p", "hi"]],
    ["a chat", ["-m", huge]],
    ["a score", ["-m", huge, "--perplexity-file", text]],
    ["an importance matrix", ["imatrix", "-m", huge, "--file", text, "--output", join(folder, "out.gguf")]],
  ])("is refused with exit code 3, need and remedies: %s", (_name, argv) => {
    const { status, stdout, stderr } = run(argv);
    expect(stderr).toMatch(
      /^error: .*huge\.gguf does not fit with context \d+: it needs 1\.\d\d TiB of host memory/,
    );
    expect(stderr).toContain("largest: routed experts F32");
    expect(stderr).not.toContain("load ");
    expect(stdout).toBe("");
    expect(status).toBe(3);
  });

  it("still gives its tokens, which need no weights", () => {
    const { status, stdout } = run(["-m", huge, "-p", "hi", "--raw", "--dump-tokens", "--json"]);
    expect(JSON.parse(stdout)[0]).toHaveProperty("id");
    expect(status).toBe(0);
  });
});
