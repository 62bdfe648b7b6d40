import { expect, test } from "vitest";
import { hostMachine as host } from "../../test/fixtures/host-machine.ts";
import { tinyModel } from "../../test/fixtures/tiny-model.ts";
import { publishedModel } from "../convert/published-models.ts";
import { MemoryError } from "../core/errors.ts";
import { GIB, MIB } from "../core/units.ts";
import type { Machine } from "../machine/machine.ts";
import { withFreed } from "../machine/machine.ts";
import { bindModel } from "../model/weights.ts";
import { regionBytes } from "../plan/memory-plan.ts";
import { alternativesTo, planRun, preflight, type RunDemand, runOptions } from "./preflight.ts";

const demand = { backend: "cpu", ctxTokens: 4096, threads: 2 } as const;
const tiny = { name: "tiny", model: bindModel(tinyModel()) };
const tinyRun = (machine: Machine, changed: Partial<RunDemand> = {}) =>
  planRun(tiny, { ...demand, ...changed }, machine);
const needBytes = regionBytes(tinyRun(host(64 * GIB)).plan);

test("a run that fits says nothing", () => {
  expect(preflight(tinyRun(host(32 * GIB)))).toEqual([]);
});

test("a tight run warns with the margin and tells what else is wrong with the machine", () => {
  const warnings = preflight(tinyRun(host(needBytes + 100 * MIB)));
  expect(warnings[0]).toMatch(/^tiny fits with only 100\.00 MiB of host memory to spare; 2\.00 GiB should/);
  expect(warnings[1]).toContain("tmpfs");
});

test("a run that does not fit is refused with the numbers", () => {
  const run = tinyRun(host(needBytes - 1));
  expect(() => preflight(run)).toThrow(MemoryError);
  expect(() => preflight(run)).toThrow(/does not fit with context \d+: it needs/);
  expect(() => preflight(run, false)).toThrow(/--force loads it/);
  expect(() => preflight(run)).not.toThrow(/--force/);
});

test("--force turns the refusal into a warning", () => {
  const warnings = preflight(tinyRun(host(needBytes - 1)), true);
  expect(warnings[0]).toMatch(/^tiny does not fit .*; loading it anyway$/);
});

test("the default context is never shrunk in silence: the refusal says what fits instead", () => {
  // A model that was trained for more than the default; its context alone decides.
  const spec = { ...tiny.model.spec, contextTokens: 1 << 20 };
  expect(runOptions(spec, { backend: "cpu" }).ctxTokens).toBe(32_768);
  expect(runOptions({ ...spec, contextTokens: 2048 }, { backend: "cpu" }).ctxTokens).toBe(2048);
  const enough = regionBytes(tinyRun(host(64 * GIB), { ctxTokens: 2048 }).plan);
  expect(() => preflight(tinyRun(host(enough)))).toThrow(/--ctx 2048 \(the largest context that fits\)/);
});

test("what this process holds already is not counted twice", () => {
  const machine = withFreed(host(needBytes - 80 * MIB), "host", 90 * MIB);
  expect(preflight(tinyRun(machine))[0]).toContain("to spare");
});

test("published files of the same shape are offered, smaller ones only", () => {
  const aliases = (alias: Parameters<typeof publishedModel>[0]) =>
    alternativesTo(publishedModel(alias)).map((other) => other.alias);
  expect(aliases("ds4f-q4")).toEqual(["ds4f-q2-q4", "ds4f-q2"]);
  expect(aliases("ds4f-q2")).toEqual([]);
  expect(alternativesTo(tiny.model)).toEqual([]);
});
