// The candidates that the device chooses against the plain choice on the host: the same ids in the same order, for rows of any
// kind, and the sum of exp.
import { TOP_LOGITS } from "../../src/backend/backend.ts";
import {
  TOP_LOGITS_BYTES,
  takeTopLogits,
  topLogits,
  topLogitsWorkBytes,
} from "../../src/backend/cuda/top-logits-steps.ts";
import { largestValues } from "../../src/core/largest-values.ts";
import { sumExp } from "../../src/core/sum-exp.ts";
import { gaussianValues } from "../random-values.ts";
import { type CheckBench, type CheckRow, countDifferent, type KernelCheck } from "./kernel-check.ts";

/** What `TopLogits.logSumExp` may be off. */
const SUM_BOUND = 1e-6;
/** Rows of so many logits are checked in fewer kinds. */
const FEW_ROWS_FROM = 50_000;
const DEAD = Number.NEGATIVE_INFINITY;

/** Rows of logits by what is hard about them. */
function hardRows(vocab: number): [string, Float32Array][] {
  const bell = gaussianValues(vocab, vocab).map((value) => 3 * value - 2);
  const changed = (change: (value: number, id: number) => number) => bell.map(change);
  return [
    ["random", bell],
    ["NaN at the end", changed((value, id) => (id === vocab - 1 ? Number.NaN : value))],
    ["ties", changed((value) => Math.round(value * 2) / 2)],
    ["equal logits", changed(() => -1.5)],
    ["both zeros", changed((_value, id) => [0, -0, -1][id % 3])],
    ["mostly -Infinity", changed((value, id) => (id % 500 === 0 ? value : DEAD))],
    ["nothing but -Infinity", changed(() => DEAD)],
    ["many NaN", changed((value, id) => (id % 3 === 0 ? Number.NaN : value))],
    ["+Infinity", changed((value, id) => (id === vocab >> 1 ? Number.POSITIVE_INFINITY : value))],
    ["ascending", bell.slice().sort()],
    ["a wide range", changed((value) => value * 40)],
  ];
}

function checkTop(bench: CheckBench, vocab: number): CheckRow[] {
  const rows = hardRows(vocab).slice(0, vocab < FEW_ROWS_FROM ? undefined : 4);
  const logits = new Float32Array(rows.length * vocab);
  rows.forEach(([, row], index) => {
    logits.set(row, index * vocab);
  });
  const sizes = topLogitsWorkBytes(rows.length, vocab);
  const work = { candidates: bench.room(sizes.candidates), sums: bench.room(sizes.sums) };
  const out = bench.room(rows.length * TOP_LOGITS_BYTES);
  const structs = new Uint8Array(rows.length * TOP_LOGITS_BYTES);
  const source = bench.up(logits);
  topLogits(bench.ctx, rows.length, vocab, source, work, out);
  bench.ctx.stream.read(out, structs);
  const again = structs.slice();
  topLogits(bench.ctx, rows.length, vocab, source, work, out);
  bench.ctx.stream.read(out, again);
  const changed = structs.reduce((sum, value, i) => sum + (again[i] === value ? 0 : 1), 0);
  const checked = rows.flatMap(([name, row], index) => {
    const expected = largestValues(row, TOP_LOGITS);
    const { ids, logits: values, logSumExp } = takeTopLogits(structs, index);
    const bits = (some: Float32Array) => new Int32Array(some.slice().buffer);
    const wrong =
      Math.abs(ids.length - expected.places.length) +
      countDifferent(ids, expected.places) +
      countDifferent(bits(values), bits(expected.values));
    const results = [{ name, error: wrong, bound: 0 }];
    if (!Number.isFinite(expected.values[0])) return results;
    const sum = expected.values[0] + Math.log(sumExp(row, expected.values[0]));
    return [...results, { name: `${name}: sum`, error: Math.abs(logSumExp - sum), bound: SUM_BOUND }];
  });
  return [...checked, { name: "the same twice", error: changed, bound: 0 }];
}

/** One group per size, so that each is done in time where a processor plays the device. */
export const checks: readonly KernelCheck[] = [5, 256, 257, 4096, 4097, 4353, 20_000, 129_280].map(
  (vocab) => ({
    name: `top of ${vocab} logits`,
    run: (bench) => checkTop(bench, vocab),
  }),
);
