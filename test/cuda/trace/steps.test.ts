// The analysis of a trace, on one of an H200 (test/fixtures/kernel-trace.csv.gz: the end of a step, then twelve steps of a
// model of six layers) and on made ones.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { traceSections } from "./layers.ts";
import { type KernelRun, parseTrace } from "./records.ts";
import { stepTimes } from "./steps.ts";

const FIXTURE = join(import.meta.dirname, "..", "..", "fixtures", "kernel-trace.csv.gz");
const text = gunzipSync(readFileSync(FIXTURE)).toString();

describe("a trace of an H200", () => {
  const { runs, lost, overwritten } = parseTrace(text);
  const times = stepTimes(runs);
  const sections = traceSections(times);

  it("is cut into its steps", () => {
    expect([runs.length, lost, overwritten]).toEqual([920, 0, 0]);
    expect(times.steps).toBe(12);
    expect(times.places).toHaveLength(75);
    expect(times.places.slice(0, 4).map(({ name }) => name)).toEqual([
      ...["rope_table", "rope_table", "embed_rows", "hyper_start"],
    ]);
    expect(times.isReplayed).toBeNull();
  });

  it("gives every place what it costs, and all of them the step", () => {
    // By hand, of the same trace: from the end of one to the end of the next, in microseconds.
    const costs = Object.fromEntries(times.places.map(({ index, costUs }) => [index, costUs]));
    expect(costs[74]).toBeCloseTo(162.4, 0);
    expect(costs[8]).toBeCloseTo(6.1, 0);
    expect(costs[14]).toBeCloseTo(27.4, 0);
    const sum = times.places.reduce((total, { costUs, idleUs }) => total + costUs + idleUs, 0);
    expect(sum / times.stepUs).toBeGreaterThan(0.98);
    expect(sum / times.stepUs).toBeLessThan(1.02);
    expect(times.betweenUs).toBeGreaterThan(300);
    // It began while those before it still ran.
    const up = times.places[14];
    expect(up.name).toBe("decode_up");
    expect(up.ownUs).toBeCloseTo(up.costUs + up.overlapUs, 0);
  });

  it("folds the places into kinds of layers", () => {
    expect(sections.map(({ title, layers, rows }) => [title, layers, rows.length])).toEqual([
      ["before the layers", [], 4],
      ["layers 0-1", [0, 1], 12],
      ["layers 2, 4", [2, 4], 16],
      ["layer 3", [3], 13],
      ["after the layers", [], 2],
    ]);
    const rows = sections.flatMap((section) => section.rows);
    expect(rows.reduce((sum, { count }) => sum + count, 0)).toBe(75);
    expect(rows.reduce((sum, { share }) => sum + share, 0)).toBeCloseTo(
      1 - times.betweenUs / times.stepUs,
      1,
    );
    expect(rows.every(({ weightBytes }) => weightBytes === null)).toBe(true);
  });

  it("sets weights beside the launches that read them, and keeps layers of other types apart", () => {
    const launches = times.places.map(({ index, name }) => ({
      kernel: name,
      bytes: name === "decode_up" ? (index > 60 ? 2e7 : 1e7) : 0,
      tensors: name === "decode_up" ? ["ffn_gate_exps"] : [],
    }));
    const weighed = traceSections(times, launches);
    expect(weighed.map(({ title }) => title).slice(1, -1)).toEqual([
      ...["layers 0-1", "layer 2", "layer 3", "layer 4"],
    ]);
    const up = weighed[1].rows.find(({ name }) => name === "decode_up")!;
    expect(up).toMatchObject({ weightBytes: 1e7, tensors: ["ffn_gate_exps"] });
    expect(up.gigabytesPerSecond).toBeCloseTo(1e7 / up.costUs / 1e3, 5);
    expect(weighed[1].rows[0].gigabytesPerSecond).toBeNull();
    const others = traceSections(times, launches.slice(1));
    expect(others.flatMap(({ rows }) => rows).every(({ weightBytes }) => weightBytes === null)).toBe(true);
  });
});

/** Steps of ten kernels: `overlapping` begins 1 us before the one before it ends. */
function madeRuns(steps: number, replayedFrom: number): KernelRun[] {
  return Array.from({ length: 10 * steps }, (_, i) => {
    const [step, place] = [Math.floor(i / 10), i % 10];
    // Launched one by one, every kernel waits two more microseconds.
    const eachNs = step < replayedFrom ? 12_000 : 10_000;
    const startNs = 200_000 * step + eachNs * place - (place === 5 ? 1000 : 0);
    const endNs = 200_000 * step + eachNs * place + (place === 4 ? 10_000 : 9000);
    const shape = { blocks: 4, threads: 256, registers: 32, dynamicSharedBytes: 0 };
    return { ...shape, name: `k${place}`, startNs, endNs, isReplayed: step >= replayedFrom };
  });
}

describe("made traces", () => {
  it("takes the replayed steps, whose kernels overlap", () => {
    const times = stepTimes(madeRuns(6, 3));
    expect(times).toMatchObject({ steps: 3, isReplayed: true });
    expect(times.places[5]).toMatchObject({ name: "k5", costUs: 9, ownUs: 10, overlapUs: 1, idleUs: 0 });
    expect(times.places[6]).toMatchObject({ costUs: 9, ownUs: 9, overlapUs: 0, idleUs: 1 });
    expect(times.betweenUs).toBe(101);
    expect(times.stepUs).toBe(200);
    expect(stepTimes(madeRuns(6, 9))).toMatchObject({ steps: 5, isReplayed: false });
  });

  it("a kernel that ends before the one that it runs beside costs nothing", () => {
    const runs = madeRuns(4, 0).map((run) =>
      run.name === "k5" ? { ...run, endNs: run.startNs + 500 } : run,
    );
    expect(stepTimes(runs).places[5]).toMatchObject({ costUs: 0, ownUs: 0.5, overlapUs: 0.5 });
  });

  it("finds no layers in a step where nothing comes again", () => {
    const sections = traceSections(stepTimes(madeRuns(4, 0)));
    expect(sections.map(({ title, rows }) => [title, rows.length])).toEqual([["the step", 10]]);
  });

  it("refuses what has no steps", () => {
    const message = /expected at least 3 decode steps .* found none among 20 kernels: trace more --tokens/;
    expect(() => stepTimes(madeRuns(2, 0))).toThrow(message);
    const changing = madeRuns(6, 0).map((run, i) => ({ ...run, name: `${run.name}-${i >> 4}` }));
    expect(() => stepTimes(changing)).toThrow(/found none among 60 kernels/);
  });
});

describe("files that are no traces", () => {
  it.each([
    ["a,b\n1,2\n", /line 1: expected a column "start_ns"/],
    [text.slice(0, 5000), /"# end ..." is missing: the traced process ended before/],
    [text.replace(",decode_up,", ",decode_up"), /line 2: expected 6 fields, found 5/],
    [
      text.replace(/(\d+),decode_up,/, "x,decode_up,"),
      /line 2: expected a whole number as end_ns, found "x"/,
    ],
    [text.replace("kept 920", "kept 921"), /expected 921 kernels, found 920/],
  ])("%#", (broken, message) => {
    expect(() => parseTrace(broken, "t.csv")).toThrow(message);
    expect(() => parseTrace(broken, "t.csv")).toThrow(expect.objectContaining({ code: "usage" }));
  });
});
