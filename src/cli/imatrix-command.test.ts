// `ds4 imatrix` on the nano model: the file it writes, its summary, its refusals.
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { Command } from "commander";
import { afterAll, afterEach, expect, it } from "vitest";
import { nanoModelPath } from "../../test/fixtures/nano-model.ts";
import { readImatrix } from "../convert/imatrix-file.ts";
import { type ImatrixFlags, registerImatrix, runImatrix } from "./imatrix-command.ts";

const folder = mkdtempSync(join(tmpdir(), "ds4-imatrix-"));
afterAll(() => rmSync(folder, { recursive: true }));
const output = join(folder, "out.gguf");
afterEach(() => rmSync(output, { force: true }));
const text = join(folder, "text.txt");
writeFileSync(text, "<｜begin▁of▁sentence｜><｜User｜>Hello there<｜Assistant｜></think>In the beginning.");

const FLAGS: ImatrixFlags = {
  model: nanoModelPath(),
  file: text,
  output,
  ctx: 6,
  chunk: 8,
  backend: "reference",
};

/** Runs the command and returns what it wrote to stderr. */
async function run(flags: Partial<ImatrixFlags>): Promise<string> {
  let written = "";
  const sink = new Writable({
    write(chunk, _encoding, done) {
      written += chunk;
      done();
    },
  });
  await runImatrix({ ...FLAGS, ...flags }, { out: sink, err: sink, quiet: flags.quiet === true });
  return written;
}

it("writes a matrix of every tensor that quantizing may ask for", async () => {
  const summary = await run({});
  expect(summary).toMatch(/^ds4: wrote .*out\.gguf: 88 matrices from \d+ tokens in 2 windows, .* t\/s\n/);
  expect(summary).toMatch(/warning: \d+ of 96 experts were never used/);
  const matrix = readImatrix(output);
  try {
    expect(matrix.datasets).toEqual(["text.txt"]);
    expect(matrix.chunkCount).toBe(2);
    const { counts } = matrix.entry("blk.5.ffn_gate_exps.weight");
    const rows = matrix.entry("blk.5.ffn_gate_inp.weight").counts[0];
    expect(counts.length).toBe(16);
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(6 * rows);
    const seen = counts.findIndex((count) => count > 0);
    expect(matrix.importance("blk.5.ffn_gate_exps.weight", seen, 256, 16)?.every((value) => value >= 0)).toBe(
      true,
    );
    for (const part of ["gate", "up", "down"]) {
      for (const kind of ["exps", "shexp"])
        expect(matrix.names).toContain(`blk.2.ffn_${part}_${kind}.weight`);
    }
  } finally {
    matrix.close();
  }
  await expect(run({})).rejects.toMatchObject({ code: "usage", message: expect.stringMatching(/--force/) });
  expect(await run({ force: true, quiet: true })).toBe("");
});

it("refuses a missing model, a missing or empty text", async () => {
  const empty = join(folder, "empty.txt");
  writeFileSync(empty, "");
  const refused = { code: "usage" };
  await expect(run({ model: join(folder, "none.gguf") })).rejects.toMatchObject(refused);
  await expect(run({ file: join(folder, "none.txt") })).rejects.toMatchObject(refused);
  await expect(run({ file: empty })).rejects.toMatchObject(refused);
  expect(readdirSync(folder).sort()).toEqual(["empty.txt", "text.txt"]);
});

it("stops at Ctrl+C and leaves no file", async () => {
  writeFileSync(join(folder, "long.txt"), "In the beginning. ".repeat(200));
  const running = run({ file: join(folder, "long.txt"), chunk: 4 });
  setImmediate(() => process.emit("SIGINT"));
  await expect(running).rejects.toMatchObject({ code: "cancelled" });
  expect(existsSync(output)).toBe(false);
});

it.each([
  ["--ctx", "1"],
  ["--chunk", "0"],
  ["--threads", "0"],
  ["--backend", "gpu"],
])("refuses %s %s", async (flag, value) => {
  const program = new Command();
  registerImatrix(program);
  program.commands[0].exitOverride().configureOutput({ writeErr: () => {} });
  const argv = ["imatrix", "-m", FLAGS.model, "-f", text, "-o", output, flag, value];
  await expect(program.parseAsync(argv, { from: "user" })).rejects.toMatchObject({
    code: "commander.invalidArgument",
  });
});
