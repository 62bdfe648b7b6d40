// `ds4 bench` on the nano model: what goes to standard output, the facts, refusals, interruption, comparison.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { afterAll, expect, it } from "vitest";
import { nanoModelPath } from "../../test/fixtures/nano-model.ts";
import { parseCsv } from "../bench/bench-report.ts";
import { CancelledError, UsageError } from "../core/errors.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import { tokenizerFromGguf } from "../tokenizer/gguf-tables.ts";
import { runBench } from "./bench-command.ts";
import type { BenchFlags } from "./bench-flags.ts";
import { benchTokens } from "./bench-prompt.ts";

const folder = mkdtempSync(join(tmpdir(), "ds4-bench-"));
afterAll(() => rmSync(folder, { recursive: true }));
const FLAGS: BenchFlags = {
  model: nanoModelPath(),
  ctxStart: 8,
  ctxMax: 24,
  stepIncr: 8,
  stepMul: 1,
  genTokens: 2,
  backend: "reference",
};

/** Runs the command; `onErr` sees what is written to a terminal's stderr. */
async function run(flags: Partial<BenchFlags>, onErr: (text: string) => void = () => {}) {
  const written = { out: "", err: "" };
  const sink = (name: "out" | "err") =>
    Object.assign(
      new Writable({
        write(chunk, _encoding, done) {
          written[name] += chunk;
          if (name === "err") onErr(String(chunk));
          done();
        },
      }),
      { isTTY: name === "err", columns: 120 },
    );
  const terminal = { out: sink("out"), err: sink("err"), quiet: flags.quiet === true };
  let error: unknown;
  await runBench({ ...FLAGS, ...flags }, terminal, [
    "node",
    "/somewhere/ds4-bench.js",
    "-n",
    "2",
    "a b",
  ]).catch((thrown) => {
    error = thrown;
  });
  return { ...written, error };
}

it("prints the table and the facts, and writes CSV and SVG", async () => {
  const [csv, svg] = [join(folder, "a.csv"), join(folder, "a.svg")];
  const { out, error } = await run({ csv, svg });
  expect(error).toBeUndefined();
  expect(out).toMatch(/^context {2}prefilled/);
  expect(out).toContain("command  ds4-bench -n 2 'a b'");
  expect(
    parseCsv(readFileSync(csv, "utf8")).map((row) => [row.ctxTokens, row.prefillTokens, row.genTokens]),
  ).toEqual([
    [8, 8, 2],
    [16, 8, 2],
    [24, 8, 2],
  ]);
  expect(readFileSync(svg, "utf8").match(/<circle/g)).toHaveLength(6);
});

it("gives programs JSON alone on standard output, with every fact of case 137", async () => {
  const { out, err } = await run({ json: true, quiet: true });
  expect(err).toBe("");
  const { facts, rows, repeat, unstable } = JSON.parse(out);
  expect(rows).toHaveLength(3);
  expect(repeat.ctxTokens).toBe(8);
  expect(unstable === null || unstable.startsWith("unstable run: ")).toBe(true);
  for (const key of [
    "version",
    "date",
    "command",
    "system",
    "cpu",
    "backend",
    "modelFile",
    "backendDescription",
  ]) {
    expect(facts[key], key).toMatch(/./);
  }
  for (const key of [
    "coreCount",
    "memoryBytes",
    "availableBytes",
    "modelBytes",
    "chunkTokens",
    "peakRssBytes",
  ]) {
    expect(facts[key], key).toBeGreaterThan(0);
  }
  expect(facts.modelFingerprint).toMatch(/^[0-9a-f]{64}$/);
  expect(facts.ctxAllocTokens).toBe(27);
  expect(facts.planBytes).toBeGreaterThan(rows[0].kvcacheBytes);
});

it("gives CSV alone on standard output; the table goes to stderr", async () => {
  const { out, err } = await run({ csv: "-" });
  expect(parseCsv(out)).toHaveLength(3);
  expect(out.split("\n")).toHaveLength(5);
  expect(err).toContain("first token");
});

it("keeps the rows that were measured when it is interrupted", async () => {
  let interrupted = false;
  const { out, error } = await run({ csv: "-", ctxMax: 64, stepIncr: 8 }, (text) => {
    if (interrupted || !text.includes("decode at 24")) return;
    interrupted = true;
    process.emit("SIGINT");
  });
  expect(error).toBeInstanceOf(CancelledError);
  expect(parseCsv(out).map((row) => row.ctxTokens)).toEqual([8, 16]);
});

it("refuses a prompt that is too short, contexts above the model's, and two owners of standard output", async () => {
  const text = join(folder, "short.txt");
  writeFileSync(text, "In the beginning.");
  expect((await run({ promptFile: text })).error).toMatchObject({
    message: expect.stringMatching(/needs 24 tokens/),
  });
  expect((await run({ promptFile: text, randomPrompt: true })).error).toBeInstanceOf(UsageError);
  expect((await run({ http: "http://127.0.0.1:9", randomPrompt: true })).error).toBeInstanceOf(UsageError);
  const tooLong = await run({ ctxMax: 10_000_000 });
  expect(tooLong.error).toBeInstanceOf(UsageError);
  expect(String(tooLong.error)).toMatch(/--ctx-max: expected at most \d+/);
  expect((await run({ ctxAlloc: 10 })).error).toMatchObject({
    message: expect.stringMatching(/--ctx-alloc: expected 27\.\.\d+, got 10/),
  });
  expect((await run({ csv: "-", json: true })).error).toBeInstanceOf(UsageError);
});

it("random prompts are the same in every run and spread over the vocabulary", () => {
  const tokenizer = tokenizerFromGguf(openGguf(nanoModelPath()));
  const tokens = benchTokens(tokenizer, { randomPrompt: true }, 4000);
  expect(benchTokens(tokenizer, { randomPrompt: true }, 4000)).toEqual(tokens);
  expect(tokens.some((id) => tokenizer.isSpecial(id))).toBe(false);
  const distinct = new Set(tokens).size;
  expect(distinct).toBeGreaterThan(0.5 * Math.min(4000, tokenizer.vocabSize));
  expect(Math.max(...tokens)).toBeGreaterThan(0.9 * tokenizer.vocabSize);
});

it("compares two files, ours and ds4's", async () => {
  const [a, b] = [join(folder, "ours.csv"), join(folder, "ds4.csv")];
  writeFileSync(a, "ctx_tokens,prefill_tps,gen_tps,extra\n2048,100,10,1\n4096,90,9,1\n");
  writeFileSync(
    b,
    "ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,kvcache_bytes\n2048,2048,200,128,15,1\n",
  );
  const svg = join(folder, "compared.svg");
  const { out } = await run({ compare: [a, b], svg });
  expect(out).toContain("2.00x");
  expect(out).toContain("1.50x");
  expect(readFileSync(svg, "utf8").match(/<polyline/g)).toHaveLength(4);
  expect((await run({ compare: [a] })).error).toBeInstanceOf(UsageError);
  expect(String((await run({ compare: [a, join(folder, "none.csv")] })).error)).toContain("none.csv");
});
