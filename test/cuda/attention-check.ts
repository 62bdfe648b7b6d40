// Compressor, indexer and attention against the CPU kernels; see sequence.check.ts.
import type { RowParts } from "../../src/backend/cuda/half-rows.ts";
import { decodeStateWords, planAttention, planSelection } from "../../src/backend/cuda/sequence-plans.ts";
import {
  attend,
  compress,
  compressorSlotValues,
  nextSlots,
  selectEntries,
} from "../../src/backend/cuda/sequence-steps.ts";
import { gaussianValues, mulberry32 } from "../random-values.ts";
import {
  type CheckBench,
  type CheckRow,
  countDifferent,
  type KernelCheck,
  largestError,
  roundedRows,
} from "./kernel-check.ts";

/** By parts per value: one float16 rounding to the other side; float32 sums in another order. */
const ENTRIES = { 1: 1e-3, 2: 1e-5 } as const;
/** By parts per value: float16 queries and weights; with two parts float32 sums in another order. */
const ATTENTION = { 1: 2e-3, 2: 1e-5 } as const;
/** Entries whose scores are this near, relative to the largest, may be chosen one for the other. */
const NEAR_TIE = 1e-6;
const PARTS: readonly RowParts[] = [1, 2];
const STARTS = [0, 1, 127, 128, 5000, 100_000];
const EPSILON = 1e-6;

interface CompressorCase {
  parts: RowParts;
  ratio: number;
  width: number;
  start: number;
  count: number;
}

function checkCompressor(
  bench: CheckBench,
  { parts, ratio, width, start, count }: CompressorCase,
): CheckRow[] {
  const projected = ratio === 4 ? 2 * width : width;
  const previous = projected > width ? ratio * width : 0;
  const pairs = Math.min(32, width / 4);
  const half = ratio * projected;
  const slotValues = compressorSlotValues(ratio, width, projected);
  const slotBit = 1;
  const slotsWord = start % 3 === 0 ? 0 : 1 << slotBit; // either slot may be the valid one
  const both = gaussianValues(2 * slotValues, 20);
  const kv = gaussianValues(count * projected, 21);
  const gate = gaussianValues(count * projected, 22, 2);
  const ape = gaussianValues(half, 23);
  const norm = gaussianValues(width, 24);
  const frequencies = new Float32Array(pairs).map((_, i) => 160_000 ** (-i / pairs));
  const slots = bench.up(both);
  const entryRows = Math.floor((start + count) / ratio);
  const entries = new Float32Array(entryRows * width);
  const deviceEntries = bench.upRows(entries, width, parts);
  const compressor = {
    ...{ ratio, width, projected, pairs, normEpsilon: EPSILON, slots, slotBit, entries: deviceEntries },
    rowParts: parts,
    ...{ ape: bench.up(ape), normWeight: bench.up(norm), frequencies: bench.up(frequencies) },
  };
  const state = bench.up(decodeStateWords(start, count, slotsWord));
  compress(bench.ctx, { compressor, count, state, kv: bench.up(kv), gate: bench.up(gate) });

  const slotOf = (word: number) => {
    const from = ((word >> slotBit) & 1) * slotValues;
    const part = (offset: number, values: number) => both.subarray(from + offset, from + offset + values);
    return [part(0, half), part(half, half), part(2 * half, previous), part(2 * half + previous, previous)];
  };
  const [nowKv, nowGate, nowPreviousKv, nowPreviousGate] = slotOf(slotsWord);
  const next = slotOf(nextSlots(slotsWord, slotBit, ratio, start, count));
  bench.cpu.compress(
    ...[
      bench.workspace,
      ratio,
      width,
      projected,
      start,
      count,
      pairs,
      kv,
      gate,
      nowKv,
      nowGate,
      next[0],
      next[1],
    ],
    ...[nowPreviousKv, nowPreviousGate, next[2], next[3], ape, norm, EPSILON, frequencies, entries],
  );
  const name = `ratio ${ratio}, ${width} wide x ${parts}, from ${start}, ${count} tokens`;
  const found = bench.rows(deviceEntries, entries.length, width, parts);
  const carried = bench.floats(slots, both.length);
  return [
    {
      name: `entries ${name}`,
      error: largestError(found, roundedRows(entries, width, parts)),
      bound: ENTRIES[parts],
    },
    { name: `carried ${name}`, error: largestError(carried, both), bound: 0 },
  ];
}

interface SelectionCase {
  parts: RowParts;
  start: number;
  count: number;
  heads: number;
  dim: number;
  topK: number;
  /** Whole numbers only, so that sums are exact and many scores are equal. */
  ties?: boolean;
  /** Head weights of NaN and both infinities, so that scores are these too. */
  notFinite?: boolean;
  /** Says of a longer context than there is, as a captured decode step does. */
  mostEntries?: number;
}

function checkSelection(bench: CheckBench, test: SelectionCase): CheckRow[] {
  const { parts, start, count, heads, dim, topK, ties = false, notFinite = false } = test;
  const ratio = 4;
  const visible = Math.floor((start + count) / ratio);
  const whole = (values: Float32Array) => (ties ? values.map(Math.round) : values);
  const queries = whole(gaussianValues(count * heads * dim, 30, ties ? 0.6 : 1));
  const headWeights = whole(gaussianValues(count * heads, 31));
  const raw = whole(gaussianValues(Math.max(1, visible) * dim, 32, ties ? 0.6 : 1));
  const entries = roundedRows(raw, dim, parts);
  const odd = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  if (notFinite) headWeights.set(headWeights.map((value, i) => odd[i % heads] ?? value));
  const selected = new Int32Array(count * topK).fill(-1);
  const counts = new Int32Array(count);
  bench.cpu.selectEntries(
    ...[
      bench.workspace,
      start,
      count,
      ratio,
      heads,
      dim,
      topK,
      queries,
      headWeights,
      entries,
      selected,
      counts,
    ],
  );
  const shape = {
    heads,
    dim,
    topK,
    countTokens: count,
    mostEntries: test.mostEntries ?? visible,
    rowParts: parts,
  };
  const plan = planSelection(bench.ctx.device, shape);
  const found = bench.room(selected.byteLength);
  const foundCounts = bench.room(counts.byteLength);
  selectEntries(bench.ctx, shape, ratio, bench.up(decodeStateWords(start, count, 0)), {
    ...{
      queries: bench.up(queries),
      headWeights: bench.up(headWeights),
      entries: bench.upRows(entries, dim, parts),
    },
    ...{ scores: bench.room(plan.scoreBytes), candidates: bench.room(plan.candidateBytes) },
    ...{ selected: found, counts: foundCounts },
  });
  const name = `${count} tokens from ${start}, ${heads} x ${dim} x ${parts}, top ${topK}${ties ? ", ties" : ""}`;
  const table = bench.ints(found, selected.length);
  let worst = 0;
  for (let token = 0; token < count; token++) {
    const row = (all: Int32Array) => all.subarray(token * topK, token * topK + counts[token]);
    const own = row(table);
    const seen = Math.floor((start + token + 1) / ratio);
    const isChoice = own.every((id, i) => id >= 0 && id < seen && (i === 0 || own[i - 1] < id));
    const scoreOf = exactScores(test, token, queries, headWeights, entries);
    worst = Math.max(
      worst,
      isChoice ? largestGap(row(selected), own, seen, scoreOf) : Number.POSITIVE_INFINITY,
    );
  }
  const wrongCounts = countDifferent(bench.ints(foundCounts, count), counts);
  return [
    { name: `chosen ${name}`, error: worst, bound: ties || notFinite ? 0 : NEAR_TIE },
    { name: `counts ${name}`, error: wrongCounts, bound: 0 },
  ];
}

/** An entry's score for a token, in float64. */
function exactScores(
  { heads, dim }: SelectionCase,
  token: number,
  queries: Float32Array,
  headWeights: Float32Array,
  entries: Float32Array,
): (entry: number) => number {
  return (entry) => {
    let score = 0;
    for (let head = 0; head < heads; head++) {
      const query = (token * heads + head) * dim;
      let match = 0;
      for (let d = 0; d < dim; d++) match += queries[query + d] * entries[entry * dim + d];
      score += Math.max(0, match) * headWeights[token * heads + head];
    }
    return score;
  };
}

/**
 * By how much entries that were wrongly chosen score less than the worst expected one, relative to the largest score; 0
 * when the choices are equal. Scores that are no numbers must not differ in choice: infinite then.
 */
function largestGap(
  expected: Int32Array,
  found: Int32Array,
  seen: number,
  scoreOf: (entry: number) => number,
): number {
  const right = new Set(expected);
  const wrong = [...found].filter((id) => !right.has(id));
  if (wrong.length === 0) return 0;
  const largest = Array.from({ length: seen }, (_, entry) => Math.abs(scoreOf(entry))).reduce((a, b) =>
    Math.max(a, b),
  );
  const border = Math.min(...[...expected].map(scoreOf));
  const gap = Math.max(...wrong.map((id) => border - scoreOf(id))) / largest;
  // Equal scores in float64 whose order differs: ties go to the lower index, which the caller's bound of 0 asks for.
  return Number.isNaN(gap) ? Number.POSITIVE_INFINITY : Math.max(gap, Number.MIN_VALUE);
}

interface AttentionCase {
  parts: RowParts;
  start: number;
  count: number;
  heads: number;
  dim: number;
  ratio: number;
  topK?: number;
  turnBack?: boolean;
  mostKeys?: number;
}

/** `topK` different entries of `visible`, ascending. */
function randomEntries(visible: number, topK: number, seed: number): number[] {
  const random = mulberry32(seed);
  const chosen = new Set<number>();
  while (chosen.size < Math.min(visible, topK)) chosen.add(random() % visible);
  return [...chosen].sort((a, b) => a - b);
}

function checkAttention(bench: CheckBench, test: AttentionCase): CheckRow[] {
  const { parts, start, count, heads, dim, ratio, topK = 0, turnBack = false } = test;
  const window = 128;
  const ringRows = window + count;
  const visible = ratio > 0 ? Math.floor((start + count) / ratio) : 0;
  const queries = gaussianValues(count * heads * dim, 40);
  const ring = roundedRows(gaussianValues(ringRows * dim, 41), dim, parts);
  const entries = roundedRows(gaussianValues(Math.max(1, visible) * dim, 42), dim, parts);
  const sinks = gaussianValues(heads, 43);
  const selected = topK > 0 ? new Int32Array(count * topK) : null;
  const counts = topK > 0 ? new Int32Array(count) : null;
  for (let token = 0; selected && counts && token < count; token++) {
    const chosen = randomEntries(Math.floor((start + token + 1) / ratio), topK, 44 + token);
    selected.set(chosen, token * topK);
    counts[token] = chosen.length;
  }
  const expected = new Float32Array(queries.length);
  const { cpu, workspace, ctx } = bench;
  cpu.attend(
    ...[workspace, start, count, heads, dim, window, ringRows, ratio, topK, queries, ring, entries, selected],
    ...[counts, sinks, expected],
  );
  const pairs = Math.min(32, dim / 4);
  const angles = gaussianValues(count * pairs, 45, 2);
  const [cosines, sines] = [angles.map(Math.cos), angles.map(Math.sin)];
  if (turnBack) {
    cpu.rotateHeads(workspace, count, heads, dim, pairs, expected, cosines, sines, false, EPSILON, true);
  }
  const mostKeys = test.mostKeys ?? window + (topK > 0 ? topK : visible);
  const shape = { heads, dim, countTokens: count, mostKeys, rowParts: parts };
  const plan = planAttention(ctx.device, shape);
  const out = bench.room(expected.byteLength);
  const groupHeads = Math.min(2, heads);
  const rowBytes = 1.375 * groupHeads * dim;
  const int8 = bench.room((heads / groupHeads) * rowBytes);
  const isWanted = count === 1 && dim % 128 === 0 && heads % groupHeads === 0;
  const isQuantized = attend(ctx, shape, bench.up(decodeStateWords(start, count, 0)), {
    quantized: isWanted ? { buffer: int8, groupHeads } : null,
    ...{
      queries: bench.up(queries),
      ring: bench.upRows(ring, dim, parts),
      window,
      ringRows,
      ratio,
      topK,
      out,
    },
    ...{ entries: bench.upRows(entries, dim, parts), selected: selected && bench.up(selected) },
    ...{ counts: counts && bench.up(counts), sinks: bench.up(sinks) },
    ...{ parts: bench.room(plan.partBytes), stats: bench.room(plan.statBytes) },
    turnBack: turnBack ? { cosines: bench.up(cosines), sines: bench.up(sines), pairs } : null,
  });
  const name = `${count} tokens from ${start}, ${heads} x ${dim} x ${parts}, ratio ${ratio}${topK > 0 ? `, top ${topK}` : ""}`;
  const cut = `${plan.kernel} x ${plan.shares}`;
  const found = bench.floats(out, expected.length);
  const error = largestError(found, expected);
  const rows: CheckRow[] = [{ name: `attend ${name} (${cut})`, error, bound: ATTENTION[parts] }];
  if (!isQuantized) return rows;
  const forms = bench.floats(int8, int8.bytes / 4);
  const back = Array.from({ length: heads / groupHeads }, (_, row) =>
    widened(forms.subarray((row * rowBytes) / 4, ((row + 1) * rowBytes) / 4), groupHeads * dim),
  );
  // Half a step of int8, of the largest value of 32.
  rows.push({
    name: `its int8 form`,
    error: largestError(Float32Array.of(...back.flat()), found),
    bound: 0.5 / 127 + 1e-6,
  });
  return rows;
}

/** A row of int8 form, [cols] int8 and a float32 scale of every 32, as numbers. */
function widened(form: Float32Array, cols: number): number[] {
  const quants = new Int8Array(form.buffer, form.byteOffset, cols);
  const scales = form.subarray(cols / 4, cols / 4 + cols / 32);
  return Array.from(quants, (quant, i) => quant * scales[i >> 5]);
}

/** Checks of the steps with sequence state. */
export const attentionChecks: readonly KernelCheck[] = [
  { name: "compressor", run: (bench) => compressorCases().flatMap((test) => checkCompressor(bench, test)) },
  { name: "indexer", run: (bench) => selectionCases().flatMap((test) => checkSelection(bench, test)) },
  { name: "attention", run: (bench) => attentionCases().flatMap((test) => checkAttention(bench, test)) },
];

/** Each case with rows of one and of two halves per value. */
function withParts<Case>(cases: readonly Case[]): (Case & { parts: RowParts })[] {
  return cases.flatMap((test) => PARTS.map((parts) => ({ ...test, parts })));
}

function compressorCases(): CompressorCase[] {
  const counts = [1, 2, 7, 33, 260];
  return withParts([
    ...STARTS.flatMap((start) =>
      counts.flatMap((count) => [
        { ratio: 4, width: 128, start, count },
        { ratio: 128, width: 64, start, count },
      ]),
    ),
    { ratio: 4, width: 512, start: 7, count: 9 },
    { ratio: 128, width: 512, start: 120, count: 300 },
    { ratio: 4, width: 32, start: 3, count: 1 },
  ]);
}

function selectionCases(): SelectionCase[] {
  const small = { heads: 4, dim: 32 };
  return withParts<Omit<SelectionCase, "parts">>([
    ...STARTS.flatMap((start) => [1, 7].map((count) => ({ start, count, ...small, topK: 16 }))),
    ...[64, 96, 128].map((dim) => ({ start: 4000, count: 2, heads: 12, dim, topK: 50 })),
    { start: 5000, count: 33, heads: 64, dim: 128, topK: 512 },
    { start: 2040, count: 33, heads: 8, dim: 64, topK: 512 },
    { start: 5000, count: 2, ...small, topK: 100, ties: true },
    { start: 2000, count: 2, ...small, topK: 60, notFinite: true },
    { start: 2000, count: 2, ...small, topK: 300, notFinite: true },
    { start: 300_000, count: 1, ...small, topK: 512, ties: true },
    { start: 300, count: 1, ...small, topK: 16, mostEntries: 250_000 },
    { start: 1_048_575, count: 1, ...small, topK: 512, ties: true },
  ]);
}

function attentionCases(): AttentionCase[] {
  const small = { heads: 8, dim: 64 };
  const full = { heads: 64, dim: 512 };
  return withParts<Omit<AttentionCase, "parts">>([
    ...STARTS.flatMap((start) =>
      [1, 2, 7, 33].flatMap((count) => [
        { start, count, ...small, ratio: 0 },
        { start, count, ...small, ratio: 128, turnBack: true },
        { start, count, ...small, ratio: 4, topK: 24 },
      ]),
    ),
    ...[32, 64, 128, 512].flatMap((dim) =>
      [4, 16, 24, 64].map((heads) => ({ start: 600, count: 2, heads, dim, ratio: 4, topK: 100 })),
    ),
    { start: 9000, count: 1, ...full, ratio: 4, topK: 512, turnBack: true },
    { start: 300, count: 1, ...full, ratio: 128, mostKeys: 8000 },
    { start: 100, count: 160, ...full, ratio: 4, topK: 64, turnBack: true },
    { start: 0, count: 160, heads: 32, dim: 512, ratio: 128 },
    { start: 1000, count: 300, heads: 4, dim: 32, ratio: 4, topK: 16 },
  ]);
}
