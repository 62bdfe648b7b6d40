// `ds4 convert` and `ds4 quantize` as commands: flags, summaries, exit codes, Ctrl+C.
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { NANO_FOLDER } from "../../test/fixtures/damaged-checkpoint.ts";
import { RECIPES } from "../convert/recipe.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import { registerConvert } from "./convert-command.ts";
import { registerQuantize } from "./quantize-command.ts";

const COMMAND = join(import.meta.dirname, "ds4.ts");
const folder = mkdtempSync(join(tmpdir(), "ds4-convert-cli-"));
const outPath = join(folder, "out.gguf");
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => {
  for (const name of readdirSync(folder)) rmSync(join(folder, name));
});

function ds4(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [COMMAND, ...args], { encoding: "utf8" });
  return { status, stdout, stderr };
}

it("has every flag that the README names, and the README every flag of the help", () => {
  const program = new Command("ds4");
  registerConvert(program);
  registerQuantize(program);
  const readme = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
  const section = readme.slice(readme.indexOf("## Making model files"), readme.indexOf("## Hardware"));
  const named = new Set([...section.matchAll(/--[a-z][\w-]+/g)].map(([flag]) => flag));
  const known = program.commands.flatMap(({ options }) => options.map(({ short, long }) => [short, long]));
  expect([...named].sort()).toEqual(
    [...new Set(known.filter(([short]) => short !== "-o").map(([, long]) => long))].sort(),
  );
  for (const recipe of RECIPES) expect(section).toContain(`\`${recipe}\``);
});

describe("ds4 convert and ds4 quantize", () => {
  it("write a file, sum it up on stderr, and refuse to replace it", () => {
    const args = ["convert", NANO_FOLDER, "-o", outPath, "--recipe", "mxfp4"];
    const first = ds4(...args);
    expect(first).toMatchObject({ status: 0, stdout: "" });
    expect(first.stderr).toContain("178 tensors, 28.54 MiB in");
    expect(first.stderr).toContain("MXFP4 9.56 MiB");
    const second = ds4(...args);
    expect(second.status).toBe(2);
    expect(second.stderr).toMatch(/exists; .*--force/);
    expect(ds4(...args, "--force", "--quiet")).toEqual({ status: 0, stdout: "", stderr: "" });

    const smaller = join(folder, "q8.gguf");
    const quantize = ds4(
      "quantize",
      outPath,
      smaller,
      "--recipe",
      "q8",
      "--tensor-type",
      "output.weight=F32",
    );
    expect(quantize.status).toBe(0);
    const file = openGguf(smaller);
    expect(file.tensor("output.weight")?.type).toBe("F32");
    expect(file.tensor("blk.0.ffn_up_exps.weight")?.type).toBe("Q8_0");
    file.close();
  });

  it.each([
    [["convert", NANO_FOLDER, "-o", outPath], 2, /--recipe/],
    [["convert", NANO_FOLDER, "--recipe", "q8"], 2, /--output/],
    [["convert", NANO_FOLDER, "-o", outPath, "--recipe", "q3"], 2, /f32, mxfp4, q8/],
    [["convert", NANO_FOLDER, "-o", outPath, "--recipe", "q8", "--threads", "0"], 2, /1..1024/],
    [["convert", folder, "-o", outPath, "--recipe", "q8"], 1, /config.json/],
    [["quantize", outPath, outPath, "--recipe", "q8"], 1, /cannot open/],
    [["quantize", outPath, outPath, "--recipe", "q8", "--tensor-type", "x"], 2, /NAME=TYPE/],
  ])("%j ends with a message and exit code %i", (args, status, message) => {
    const result = ds4(...args);
    expect(result.status).toBe(status);
    expect(result.stderr).toMatch(message);
    expect(result.stderr).not.toContain("    at ");
    expect(readdirSync(folder)).toEqual([]);
  });

  it("leave nothing behind on Ctrl+C", async () => {
    const child = spawn(process.execPath, [COMMAND, "convert", NANO_FOLDER, "-o", outPath, "--recipe", "q8"]);
    const exited = new Promise<number | null>((resolve) => child.on("exit", resolve));
    while (readdirSync(folder).length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(readdirSync(folder)[0]).toMatch(/\.partial$/);
    child.kill("SIGINT");
    expect(await exited).toBe(130);
    expect(readdirSync(folder)).toEqual([]);
  });
});
