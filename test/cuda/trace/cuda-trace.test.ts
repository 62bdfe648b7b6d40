// The command on a trace that is there: no GPU is needed. What it refuses, it refuses before a model is loaded.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { sumUs } from "./trace-report.ts";

const ROOT = join(import.meta.dirname, "..", "..", "..");
const FIXTURE = join(ROOT, "test", "fixtures", "kernel-trace.csv.gz");
const folder = mkdtempSync(join(tmpdir(), "ds4-cuda-trace-"));
afterAll(() => rmSync(folder, { recursive: true }));

function run(...args: string[]) {
  const script = join(ROOT, "scripts", "cuda-trace.ts");
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args], { encoding: "utf8" });
  return { status, stdout, stderr };
}

it("prints the table of a kept trace, and writes it as CSV and as a report", () => {
  const [csv, report] = [join(folder, "table.csv"), join(folder, "report.md")];
  const { status, stdout, stderr } = run("--from", FIXTURE, "--csv", csv, "--report", report);
  expect([status, stderr]).toEqual([0, ""]);
  expect(stdout).toMatch(/^decode_up +2 +256 +122 +27\.4 +54\.8 +27\.0 +0\.0 +54\.8 +3\.6 %$/m);
  expect(stdout).toContain("1528 us (median of 12)");
  expect(readFileSync(report, "utf8")).toBe(stdout.slice(0, -1));
  expect(readFileSync(csv, "utf8").trimEnd().split("\n")).toHaveLength(1 + 4 + 12 + 16 + 13 + 2);
});

it("gives programs JSON alone", () => {
  const { stdout } = run("--from", FIXTURE, "--json");
  const report = JSON.parse(stdout);
  const { costUs, idleUs } = sumUs(report);
  expect((costUs + idleUs) / report.times.stepUs).toBeCloseTo(1, 1);
});

it.each([
  [["--from", "/nonexistent.csv"], /--from \/nonexistent\.csv: no such file/],
  [["-m", "x.gguf", "--tokens", "2"], /--tokens: expected 4\.\.1000, got "2"/],
  [["-m", "x.gguf", "--kv-type", "q8"], /--kv-type: expected f16 or f16x2, got "q8"/],
  [
    ["-m", "x.gguf", "--toolkit", "/nonexistent"],
    /needs CUPTI: .* in none of \/nonexistent; install the toolkit/,
  ],
])("refuses %j", (args, message) => {
  const { status, stdout, stderr } = run(...args);
  expect([status, stdout]).toEqual([1, ""]);
  expect(stderr).toMatch(message);
});
