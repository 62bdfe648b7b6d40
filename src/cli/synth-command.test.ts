// `ds4 synth`: flags, refusals, summary.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { Command } from "commander";
import { afterAll, expect, it } from "vitest";
import { registerSynth, runSynth, type SynthFlags } from "./synth-command.ts";

const folder = mkdtempSync(join(tmpdir(), "ds4-synth-command-"));
afterAll(() => rmSync(folder, { recursive: true }));
const path = join(folder, "m.gguf");

const FLAGS: SynthFlags = { shape: "nano", recipe: "q4", layers: 3, seed: 1n };

/** Runs the command and returns what it wrote to stderr. */
async function run(flags: SynthFlags): Promise<string> {
  let text = "";
  const sink = new Writable({
    write(chunk, _encoding, done) {
      text += chunk;
      done();
    },
  });
  await runSynth(path, flags, { out: sink, err: sink, quiet: flags.quiet === true });
  return text;
}

it("writes a file, says so, and replaces it with --force only", async () => {
  expect(await run(FLAGS)).toMatch(/^ds4: wrote .*m\.gguf: 8\d tensors, \d+\.\d\d MiB in .*\/s\n$/);
  const first = readFileSync(path);
  await expect(run(FLAGS)).rejects.toMatchObject({
    code: "usage",
    message: expect.stringMatching(/--force/),
  });
  expect(await run({ ...FLAGS, seed: 2n, force: true, quiet: true })).toBe("");
  expect(readFileSync(path).equals(first)).toBe(false);
  rmSync(path);
});

it("refuses more layers than the shape has", async () => {
  await expect(run({ ...FLAGS, layers: 7 })).rejects.toMatchObject({
    code: "usage",
    message: "--layers: the shape nano has 1..6 layers, got 7",
  });
  expect(existsSync(path)).toBe(false);
});

it.each([
  ["--shape", "huge"],
  ["--recipe", "q3"],
  ["--layers", "0"],
  ["--layers", "44"],
  ["--seed", "-1"],
])("refuses %s %s", async (flag, value) => {
  const program = new Command();
  registerSynth(program);
  program.commands[0].exitOverride().configureOutput({ writeErr: () => {} });
  const parsing = program.parseAsync(["synth", path, flag, value], { from: "user" });
  await expect(parsing).rejects.toMatchObject({ code: "commander.invalidArgument" });
  expect(existsSync(path)).toBe(false);
});

it("does not touch an existing file that it refuses to replace", async () => {
  writeFileSync(path, "mine");
  await expect(run(FLAGS)).rejects.toThrow(/exists/);
  expect(readFileSync(path, "utf8")).toBe("mine");
  rmSync(path);
});
