import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { InvalidArgumentError } from "commander";
import { afterAll, expect, test } from "vitest";
import { nanoModelPath } from "../../test/fixtures/nano-model.ts";
import { MemoryError, UsageError } from "../core/errors.ts";
import { GIB } from "../core/units.ts";
import { EXIT, exitCodeOf } from "./exit-codes.ts";
import { parseBytes } from "./flag-values.ts";
import { type PlanFlags, runPlan } from "./plan-command.ts";
import type { Terminal } from "./terminal.ts";

const folder = mkdtempSync(join(tmpdir(), "ds4-plan-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const gb10: PlanFlags = { device: "gb10", slots: 1 };

/** Runs the command; `isTTY` decides about colours. */
function run(model: string, flags: Partial<PlanFlags> = {}, isTTY = false) {
  let out = "";
  const sink = new Writable({
    write(chunk, _encoding, done) {
      out += chunk;
      done();
    },
  });
  const terminal = { out: Object.assign(sink, { isTTY }), err: process.stderr, quiet: false } as Terminal;
  let code: number;
  let error: unknown;
  try {
    code = runPlan(model, { ...gb10, ...flags }, terminal);
  } catch (thrown) {
    error = thrown;
    code = exitCodeOf(thrown);
  }
  return { out, code, error };
}

test.each([16_384, 100_000])("ds4f-q2-q4 on a Spark with context %i: the table, no doubles, fits", (ctx) => {
  const { out, code } = run("ds4f-q2-q4", { ctx, budget: 119.7 * GIB });
  expect(code).toBe(EXIT.ok);
  expect(out).toContain("1328 tensors, each once; 97586411868 bytes in the file");
  expect(out).toMatch(/routed experts IQ2_XXS +38\.16 GiB {2}#+\n/);
  expect(out).toMatch(/available +119\.70 GiB {2}limited by --budget/);
  expect(out).toMatch(/\nfits\n$/);
  expect(out).not.toContain("\x1b");
});

test("a plan that does not fit is printed and refused with exit code 3", () => {
  const { out, code, error } = run("ds4f-q2-q4", { budget: 80 * GIB });
  expect(out).toMatch(/missing +\d+\.\d\d GiB\n\ndoes not fit\n$/);
  expect(error).toBeInstanceOf(MemoryError);
  expect(code).toBe(3);
  // The number it names is enough, as shown.
  const more = Number(/([\d.]+) GiB more of cuda:0 memory \(raise --budget\)/.exec(String(error))?.[1]);
  expect(run("ds4f-q2-q4", { budget: (80 + more) * GIB }).code).toBe(EXIT.ok);
});

test("remedies of the JSON pass when they are tried", () => {
  const { out, code } = run("ds4f-q2-q4", { budget: 96 * GIB, ctx: 1_048_576, slots: 3, json: true });
  expect(code).toBe(3);
  const { remedies, verdict } = JSON.parse(out);
  expect(verdict).toBe("refused");
  expect(remedies.map(({ kind }: { kind: string }) => kind)).toEqual(["file", "ctx", "memory"]);
  const [file, ctx] = remedies;
  expect(run("ds4f-q2-q4", { budget: 96 * GIB, ctx: ctx.options.ctxTokens, slots: 3 }).code).toBe(EXIT.ok);
  expect(run(file.alias, { budget: 96 * GIB, ctx: file.options.ctxTokens, slots: 3 }).code).toBe(EXIT.ok);
});

test("two halves per value double the rows of keys and values on a GPU", () => {
  const rowBytes = (kvType: "f16" | "f16x2") => {
    const { regions } = JSON.parse(run("ds4f-q2", { json: true, ctx: 65_536, kvType }).out);
    return regions.find(({ id }: { id: string }) => id === "kv/compressed-4").bytes;
  };
  expect(rowBytes("f16")).toBe(21 * (65_536 / 4) * 512 * 2);
  expect(rowBytes("f16x2")).toBe(2 * rowBytes("f16"));
});

test("JSON holds every region and adds up", () => {
  const plan = JSON.parse(run("ds4f-q2", { json: true }).out);
  const counted = plan.regions.filter(({ owner }: { owner: string }) => owner !== "reserve");
  expect(counted.reduce((sum: number, { bytes }: { bytes: number }) => sum + bytes, 0)).toBe(plan.needBytes);
  expect(plan.weightFileBytes).toBe(86_714_775_900);
  expect(plan.pools[0]).toMatchObject({ pool: "cuda:0", verdict: "fits" });
});

test("a file is planned for this machine by default", () => {
  const { out, code } = run(nanoModelPath(), { device: "cpu", budget: 2 * GIB, ctx: 4096 });
  expect(code).toBe(EXIT.ok);
  expect(out).toContain("cpu backend, context 4096, 512 tokens at a time");
  expect(out).toContain("host memory");
});

test("colours only on a terminal", () => {
  expect(run("ds4f-q2", {}, true).out).toContain("\x1b[34m█");
});

test("the sweep doubles the context, and draws it", () => {
  const svg = join(folder, "sweep.svg");
  const { out } = run("ds4f-q4", { sweep: "ctx", svg });
  expect([...out.matchAll(/^ *(\d+) .*(refused|fits|tight)$/gm)].map(([, ctx]) => Number(ctx))).toEqual(
    Array.from({ length: 9 }, (_, i) => 4096 * 2 ** i),
  );
  expect(out).toContain("refused");
  expect(readFileSync(svg, "utf8")).toMatch(/^<svg [\s\S]*119\.70 GiB available[\s\S]*<\/svg>\n$/);
});

test("wrong use is told", () => {
  expect(run("ds4f-q3").error).toBeInstanceOf(UsageError);
  expect(String(run("ds4f-q3").error)).toContain("ds4f-q4, ds4f-q2-q4, ds4f-q2");
  expect(String(run("ds4f-q2", { ctx: 2_000_000 }).error)).toContain("1..1048576");
  expect(String(run("ds4f-q2", { svg: join(folder, "x.svg") }).error)).toContain("--sweep");
});

test("sizes are read with binary and decimal units", () => {
  expect(parseBytes("119.7GiB")).toBe(Math.floor(119.7 * GIB));
  expect(parseBytes("128 GB")).toBe(128e9);
  expect(parseBytes("512mib")).toBe(512 * 1024 ** 2);
  for (const text of ["", "80", "GiB", "-1GiB", "1e3GiB", "0B", "1 PiB", "0x10GB"]) {
    expect(() => parseBytes(text), text).toThrow(InvalidArgumentError);
  }
});
