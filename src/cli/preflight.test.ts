import { expect, test } from "vitest";
import { tinyModel } from "../../test/fixtures/tiny-model.ts";
import { publishedModel } from "../convert/published-models.ts";
import { MemoryError } from "../core/errors.ts";
import { GIB, MIB } from "../core/units.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { type Machine, withFreed } from "../machine/machine.ts";
import { bindModel } from "../model/weights.ts";
import { planMemory, regionBytes } from "../plan/memory-plan.ts";
import { reserveBytes } from "../plan/overhead-regions.ts";
import { alternativesTo, defaultCheckpointBytes, preflight, runOptions } from "./preflight.ts";

/** A host with this much to be had, of 64 GiB. */
function host(availableBytes: number): Machine {
  return {
    name: "fixture",
    pools: [{ id: "host", kind: "host", totalBytes: 64 * GIB, availableBytes, limits: [] }],
    swapTotalBytes: 0,
    swapFreeBytes: 0,
    tmpfsBytes: 40 * GIB,
    isWsl: false,
    warnings: ["40.00 GiB of memory are held by files in tmpfs"],
  };
}

/** A file whose weights must not be read. */
function headerOnly(): GgufFile {
  const untouchable = () => {
    throw new Error("a weight was read");
  };
  return { ...tinyModel(), readTensor: untouchable, readTensorInto: untouchable };
}

const demand = { backend: "cpu", ctxTokens: 4096, threads: 2 } as const;
const tinyPlan = () => {
  const model = bindModel(tinyModel());
  return planMemory("tiny", model, runOptions(model.spec, demand), host(64 * GIB));
};
const needBytes = regionBytes(tinyPlan());

test("a run that fits says nothing and reads no weight", () => {
  expect(preflight(headerOnly(), demand, host(32 * GIB))).toEqual([]);
});

test("a tight run warns with the margin and tells what else is wrong with the machine", () => {
  const warnings = preflight(headerOnly(), demand, host(needBytes + 100 * MIB));
  expect(warnings[0]).toMatch(/^tiny fits with only 100\.00 MiB of host memory to spare; 2\.00 GiB should/);
  expect(warnings[1]).toContain("tmpfs");
});

test("a run that does not fit is refused with the numbers, before any weight is read", () => {
  const machine = host(needBytes - 1);
  expect(() => preflight(headerOnly(), demand, machine)).toThrow(MemoryError);
  expect(() => preflight(headerOnly(), demand, machine)).toThrow(/does not fit with context \d+: it needs/);
  expect(() => preflight(headerOnly(), { ...demand, force: false }, machine)).toThrow(/--force loads it/);
  expect(() => preflight(headerOnly(), demand, machine)).not.toThrow(/--force/);
});

test("--force turns the refusal into a warning", () => {
  const warnings = preflight(headerOnly(), { ...demand, force: true }, host(needBytes - 1));
  expect(warnings[0]).toMatch(/^tiny does not fit .*; loading it anyway$/);
});

test("the default context is never shrunk in silence: the refusal says what fits instead", () => {
  // A model that was trained for more than the default; its context alone decides.
  const file = headerOnly();
  const spec = { ...bindModel(file).spec, contextTokens: 1 << 20 };
  expect(runOptions(spec, { backend: "cpu" }).ctxTokens).toBe(32_768);
  expect(runOptions({ ...spec, contextTokens: 2048 }, { backend: "cpu" }).ctxTokens).toBe(2048);
  const small = { ...demand, ctxTokens: 2048 };
  const model = bindModel(tinyModel());
  const enough = regionBytes(planMemory("t", model, runOptions(model.spec, small), host(64 * GIB)));
  expect(() => preflight(file, demand, host(enough))).toThrow(/--ctx 2048 \(the largest context that fits\)/);
});

test("what this process holds already is not counted twice", () => {
  const machine = withFreed(host(needBytes - 80 * MIB), "host", 90 * MIB);
  expect(preflight(headerOnly(), demand, machine)[0]).toContain("to spare");
});

test("published files of the same shape are offered, smaller ones only", () => {
  const aliases = (alias: Parameters<typeof publishedModel>[0]) =>
    alternativesTo(publishedModel(alias)).map((other) => other.alias);
  expect(aliases("ds4f-q4")).toEqual(["ds4f-q2-q4", "ds4f-q2"]);
  expect(aliases("ds4f-q2")).toEqual([]);
  expect(alternativesTo(bindModel(tinyModel()))).toEqual([]);
});

test("checkpoints take a quarter of what is free beside the reserve, and the run then still fits", () => {
  const reserve = reserveBytes(64 * GIB);
  const spare = (spareBytes: number) => host(needBytes + reserve + spareBytes);
  expect(defaultCheckpointBytes(headerOnly(), demand, spare(400 * MIB))).toBe(100 * MIB);
  expect(defaultCheckpointBytes(headerOnly(), demand, spare(50 * GIB))).toBe(2 * GIB);
  expect(defaultCheckpointBytes(headerOnly(), demand, spare(-1))).toBe(0);
  const checkpointBytes = defaultCheckpointBytes(headerOnly(), demand, spare(400 * MIB));
  expect(preflight(headerOnly(), { ...demand, checkpointBytes }, spare(400 * MIB))).toEqual([]);
});
