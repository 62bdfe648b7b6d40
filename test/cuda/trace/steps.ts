// The decode steps in a trace: the kernels of one token come again with the next, so the stream is cut by its own period,
// and every place in a step gets the medians over the tokens.
import { Ds4Error } from "../../../src/core/errors.ts";
import { median } from "../../../src/core/median.ts";
import type { KernelRun } from "./records.ts";

/** A kernel's place in a step; times are medians over the steps, in microseconds. */
export interface Place {
  /** From the step's start. */
  index: number;
  name: string;
  blocks: number;
  threads: number;
  registers: number;
  dynamicSharedBytes: number;
  /** From the end of all before it to its own end, without `idleUs`: what the step would be shorter without it. */
  costUs: number;
  /** From its start to its end. */
  ownUs: number;
  /** It ran beside those before it. */
  overlapUs: number;
  /** Nothing ran before it. */
  idleUs: number;
}

/** What a trace says of decode. */
export interface StepTimes {
  /** Steps that the medians are over. */
  steps: number;
  /** The median step from the end of the one before to its own. */
  stepUs: number;
  /** Of it, before the first kernel: the host and what it copies. */
  betweenUs: number;
  places: Place[];
  /** The kernels came out of a recorded graph; null where the trace does not say. */
  isReplayed: boolean | null;
}

/** A step is longer: shorter periods are kernels of one kind in a row. */
const LEAST_KERNELS = 8;
const LEAST_STEPS = 3;

/** A run with the end of all that began before it; null for the first of a trace. */
interface Timed {
  run: KernelRun;
  readyNs: number | null;
}

/** Cuts the end of a trace into steps. Throws `usage` when it does not repeat. */
export function stepTimes(runs: readonly KernelRun[]): StepTimes {
  const { period, covered } = repeats(runs.map(({ name }) => name));
  const timed = timedRuns(runs).slice(runs.length - covered);
  const steps = chooseSteps(cut(timed, period));
  const sums = steps.map((step) => {
    const { run, readyNs } = step.at(-1)!;
    return Math.max(run.endNs, readyNs!) - step[0].readyNs!;
  });
  const places = steps[0].map((_, index) =>
    placeOf(
      index,
      steps.map((step) => step[index]),
    ),
  );
  const { isReplayed } = steps[0][0].run;
  return {
    ...{ steps: steps.length, stepUs: median(sums) / 1000, betweenUs: places[0].idleUs },
    ...{ places, isReplayed },
  };
}

/** The period that the names' end repeats with, and how many names at the end it covers. */
function repeats(names: readonly string[]): { period: number; covered: number } {
  const ids = new Map<string, number>();
  const codes = Int32Array.from(names, (name) => {
    if (!ids.has(name)) ids.set(name, ids.size);
    return ids.get(name)!;
  });
  let best = { period: 0, covered: 0 };
  for (let period = LEAST_KERNELS; period * LEAST_STEPS <= codes.length; period++) {
    let at = codes.length - 1;
    while (at >= period && codes[at] === codes[at - period]) at--;
    const covered = codes.length - 1 - at + period;
    if (covered >= LEAST_STEPS * period && covered > best.covered) best = { period, covered };
  }
  if (best.period > 0) return best;
  throw new Ds4Error(
    "usage",
    `expected at least ${LEAST_STEPS} decode steps of the same kernels at the end of the trace, ` +
      `found none among ${names.length} kernels: trace more --tokens, or another --ctx where steps do not change`,
  );
}

function timedRuns(runs: readonly KernelRun[]): Timed[] {
  let readyNs: number | null = null;
  return runs.map((run) => {
    const timed = { run, readyNs };
    readyNs = Math.max(readyNs ?? 0, run.endNs);
    return timed;
  });
}

/** Whole steps. One begins where the device waits longest: for the host, which needs the token before. */
function cut(timed: readonly Timed[], period: number): Timed[][] {
  const waits = Array.from({ length: period }, (_, offset) => {
    const there = timed.filter((each, i) => i % period === offset && each.readyNs !== null);
    return median(there.map(({ run, readyNs }) => run.startNs - readyNs!));
  });
  const first = waits.indexOf(Math.max(...waits));
  const steps: Timed[][] = [];
  for (let at = first; at + period <= timed.length; at += period) steps.push(timed.slice(at, at + period));
  return steps.filter(([{ readyNs }]) => readyNs !== null);
}

/** Those that were replayed, where there are any: the first ones are launched kernel by kernel. */
function chooseSteps(steps: readonly Timed[][]): readonly Timed[][] {
  const replayed = steps.filter((step) => step.every(({ run }) => run.isReplayed));
  return replayed.length > 0 ? replayed : steps;
}

function placeOf(index: number, runs: readonly Timed[]): Place {
  const { name, blocks, threads, registers, dynamicSharedBytes } = runs.at(-1)!.run;
  const us = (value: (run: KernelRun, readyNs: number) => number) =>
    median(runs.map(({ run, readyNs }) => value(run, readyNs!))) / 1000;
  return {
    ...{ index, name, blocks, threads, registers, dynamicSharedBytes },
    costUs: us(({ startNs, endNs }, readyNs) => Math.max(0, endNs - Math.max(readyNs, startNs))),
    ownUs: us(({ startNs, endNs }) => endNs - startNs),
    overlapUs: us(({ startNs, endNs }, readyNs) => Math.max(0, Math.min(readyNs, endNs) - startNs)),
    idleUs: us(({ startNs }, readyNs) => Math.max(0, startNs - readyNs)),
  };
}
