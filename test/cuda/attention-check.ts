// Compressor, indexer and attention against the CPU kernels; see sequence.check.ts.
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
  halfRounded,
  type KernelCheck,
  largestError,
} from "./kernel-check.ts";

/** One float16 rounding to the other side, of values whose largest is a few times their mean. */
const HALF_STEP = 1e-3;
/** Float16 queries and weights of the tensor cores. */
const TENSOR_CORE = 2e-3;
const STARTS = [0, 1, 127, 128, 5000, 100_000];
const EPSILON = 1e-6;

interface CompressorCase {
  ratio: number;
  width: number;
  start: number;
  count: number;
}

function checkCompressor(bench: CheckBench, { ratio, width, start, count }: CompressorCase): CheckRow[] {
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
  const deviceEntries = bench.upHalf(entries);
  const compressor = {
    ...{ ratio, width, projected, pairs, normEpsilon: EPSILON, slots, slotBit, entries: deviceEntries },
    ...{ ape: bench.up(ape), normWeight: bench.up(norm), frequencies: bench.up(frequencies) },
  };
  const state = bench.up(decodeStateWords(start, count, slotsWord));
  compress(bench.ctx, count, compressor, state, bench.up(kv), bench.up(gate));

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
  const name = `ratio ${ratio}, ${width} wide, from ${start}, ${count} tokens`;
  const found = bench.halves(deviceEntries, entries.length);
  const carried = bench.floats(slots, both.length);
  return [
    { name: `entries ${name}`, error: largestError(found, halfRounded(entries)), bound: HALF_STEP },
    { name: `carried ${name}`, error: largestError(carried, both), bound: 0 },
  ];
}

interface SelectionCase {
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
  const { start, count, heads, dim, topK, ties = false, notFinite = false } = test;
  const ratio = 4;
  const visible = Math.floor((start + count) / ratio);
  const whole = (values: Float32Array) => (ties ? values.map(Math.round) : values);
  const queries = whole(gaussianValues(count * heads * dim, 30, ties ? 0.6 : 1));
  const headWeights = whole(gaussianValues(count * heads, 31));
  const entries = halfRounded(whole(gaussianValues(Math.max(1, visible) * dim, 32, ties ? 0.6 : 1)));
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
  const shape = { heads, dim, topK, countTokens: count, mostEntries: test.mostEntries ?? visible };
  const plan = planSelection(bench.ctx.device, shape);
  const found = bench.room(selected.byteLength);
  const foundCounts = bench.room(counts.byteLength);
  selectEntries(bench.ctx, shape, ratio, bench.up(decodeStateWords(start, count, 0)), {
    ...{ queries: bench.up(queries), headWeights: bench.up(headWeights), entries: bench.upHalf(entries) },
    ...{ scores: bench.room(plan.scoreBytes), candidates: bench.room(plan.candidateBytes) },
    ...{ selected: found, counts: foundCounts },
  });
  const name = `${count} tokens from ${start}, ${heads} x ${dim}, top ${topK}${ties ? ", ties" : ""}`;
  const table = bench.ints(found, selected.length);
  let changed = 0;
  for (let token = 0; token < count; token++) {
    const row = (all: Int32Array) => all.subarray(token * topK, token * topK + counts[token]);
    const chosen = new Set(row(selected));
    const own = row(table);
    // Out of order or out of range counts as wrong; so does a choice that differs, unless sums were rounded.
    changed += own.filter((id, i) => !chosen.has(id) || (i > 0 && own[i - 1] >= id)).length;
  }
  const wrongCounts = countDifferent(bench.ints(foundCounts, count), counts);
  return [
    // Sums in another order may swap neighbours at the border: one in a thousand choices.
    { name: `chosen ${name}`, error: changed / (count * topK), bound: ties ? 0 : 1e-3 },
    { name: `counts ${name}`, error: wrongCounts, bound: 0 },
  ];
}

interface AttentionCase {
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

function checkAttention(bench: CheckBench, test: AttentionCase): CheckRow {
  const { start, count, heads, dim, ratio, topK = 0, turnBack = false } = test;
  const window = 128;
  const ringRows = window + count;
  const visible = ratio > 0 ? Math.floor((start + count) / ratio) : 0;
  const queries = gaussianValues(count * heads * dim, 40);
  const ring = halfRounded(gaussianValues(ringRows * dim, 41));
  const entries = halfRounded(gaussianValues(Math.max(1, visible) * dim, 42));
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
  const shape = { heads, dim, countTokens: count, mostKeys };
  const plan = planAttention(ctx.device, shape);
  const out = bench.room(expected.byteLength);
  attend(ctx, shape, bench.up(decodeStateWords(start, count, 0)), {
    ...{ queries: bench.up(queries), ring: bench.upHalf(ring), window, ringRows, ratio, topK, out },
    ...{ entries: bench.upHalf(entries), selected: selected && bench.up(selected) },
    ...{ counts: counts && bench.up(counts), sinks: bench.up(sinks) },
    ...{ parts: bench.room(plan.partBytes), stats: bench.room(plan.statBytes) },
    turnBack: turnBack ? { cosines: bench.up(cosines), sines: bench.up(sines), pairs } : null,
  });
  const name = `${count} tokens from ${start}, ${heads} x ${dim}, ratio ${ratio}${topK > 0 ? `, top ${topK}` : ""}`;
  const cut = `${plan.kernel} x ${plan.shares}`;
  const error = largestError(bench.floats(out, expected.length), expected);
  return { name: `attend ${name} (${cut})`, error, bound: TENSOR_CORE };
}

/** Checks of the steps with sequence state. */
export const attentionChecks: readonly KernelCheck[] = [
  {
    name: "compressor",
    run: (bench) =>
      STARTS.flatMap((start) =>
        [1, 2, 7, 33, 260].flatMap((count) => [
          ...checkCompressor(bench, { ratio: 4, width: 128, start, count }),
          ...checkCompressor(bench, { ratio: 128, width: 64, start, count }),
        ]),
      ).concat(
        checkCompressor(bench, { ratio: 4, width: 512, start: 7, count: 9 }),
        checkCompressor(bench, { ratio: 128, width: 512, start: 120, count: 300 }),
        checkCompressor(bench, { ratio: 4, width: 32, start: 3, count: 1 }),
      ),
  },
  {
    name: "indexer",
    run: (bench) => [
      ...STARTS.flatMap((start) =>
        [1, 7].flatMap((count) => checkSelection(bench, { start, count, heads: 4, dim: 32, topK: 16 })),
      ),
      ...[64, 96, 128].flatMap((dim) =>
        checkSelection(bench, { start: 4000, count: 2, heads: 12, dim, topK: 50 }),
      ),
      ...checkSelection(bench, { start: 5000, count: 33, heads: 64, dim: 128, topK: 512 }),
      ...checkSelection(bench, { start: 2040, count: 33, heads: 8, dim: 64, topK: 512 }),
      ...checkSelection(bench, { start: 5000, count: 2, heads: 4, dim: 32, topK: 100, ties: true }),
      ...checkSelection(bench, { start: 2000, count: 2, heads: 4, dim: 32, topK: 60, notFinite: true }),
      ...checkSelection(bench, { start: 2000, count: 2, heads: 4, dim: 32, topK: 300, notFinite: true }),
      ...checkSelection(bench, { start: 300_000, count: 1, heads: 4, dim: 32, topK: 512, ties: true }),
      ...checkSelection(bench, { start: 300, count: 1, heads: 4, dim: 32, topK: 16, mostEntries: 250_000 }),
      ...checkSelection(bench, { start: 1_048_575, count: 1, heads: 4, dim: 32, topK: 512, ties: true }),
    ],
  },
  {
    name: "attention",
    run: (bench) => [
      ...STARTS.flatMap((start) =>
        [1, 2, 7, 33].flatMap((count) => [
          checkAttention(bench, { start, count, heads: 8, dim: 64, ratio: 0 }),
          checkAttention(bench, { start, count, heads: 8, dim: 64, ratio: 128, turnBack: true }),
          checkAttention(bench, { start, count, heads: 8, dim: 64, ratio: 4, topK: 24 }),
        ]),
      ),
      ...[32, 64, 128, 512].flatMap((dim) =>
        [4, 16, 24, 64].map((heads) =>
          checkAttention(bench, { start: 600, count: 2, heads, dim, ratio: 4, topK: 100 }),
        ),
      ),
      checkAttention(bench, {
        start: 9000,
        count: 1,
        heads: 64,
        dim: 512,
        ratio: 4,
        topK: 512,
        turnBack: true,
      }),
      checkAttention(bench, { start: 300, count: 1, heads: 64, dim: 512, ratio: 128, mostKeys: 8000 }),
      checkAttention(bench, {
        start: 100,
        count: 160,
        heads: 64,
        dim: 512,
        ratio: 4,
        topK: 64,
        turnBack: true,
      }),
      checkAttention(bench, { start: 0, count: 160, heads: 32, dim: 512, ratio: 128 }),
      checkAttention(bench, { start: 1000, count: 300, heads: 4, dim: 32, ratio: 4, topK: 16 }),
    ],
  },
];
