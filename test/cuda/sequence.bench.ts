// How fast attention, indexer and compressor are at DeepSeek V4 Flash's widths: one token after long contexts, and a chunk
// of a prompt. Rows of both kinds of KV state.
import type { RowParts } from "../../src/backend/cuda/half-rows.ts";
import { decodeStateWords, planAttention, planSelection } from "../../src/backend/cuda/sequence-plans.ts";
import {
  attend,
  compress,
  compressorSlotValues,
  selectEntries,
} from "../../src/backend/cuda/sequence-steps.ts";
import type { BenchRow, Meter } from "./meter.ts";

const WINDOW = 128;
const HEADS = 64;
const DIM = 512;
const INDEXER = { heads: 64, dim: 128, topK: 512, ratio: 4 };
const PAIRS = 32;
const HALF_BYTES = 2;
const KINDS: readonly RowParts[] = [1, 2];
const KIND_NAMES = { 1: "f16", 2: "f16x2" } as const;

interface Place {
  start: number;
  count: number;
}

/** One token at 2,048 and 100,000, a chunk of 512 at both. */
const PLACES: readonly Place[] = [
  { start: 2048, count: 1 },
  { start: 100_000, count: 1 },
  { start: 2048, count: 512 },
  { start: 100_000, count: 512 },
];

function nameOf(what: string, { start, count }: Place, parts: RowParts): string {
  return `${what} ${KIND_NAMES[parts]}, ${count} token${count > 1 ? "s" : ""} at ${start}`;
}

/** ratio 0: the window alone; 4: 512 chosen entries; 128: all entries. */
function measureAttention(meter: Meter, place: Place, ratio: number, parts: RowParts): BenchRow {
  const { bench } = meter;
  const { start, count } = place;
  const visible = ratio > 0 ? Math.floor((start + count) / ratio) : 0;
  const topK = ratio === INDEXER.ratio ? INDEXER.topK : 0;
  const keys = WINDOW + (topK > 0 ? Math.min(topK, visible) : visible);
  const ringRows = WINDOW + count;
  const shape = { heads: HEADS, dim: DIM, countTokens: count, mostKeys: keys, rowParts: parts };
  const plan = planAttention(bench.ctx.device, shape);
  const zeros = (values: number) => bench.up(new Float32Array(values));
  // Spread over all entries, other ones per token.
  const chosen = new Int32Array(count * topK).map((_, i) => {
    const [token, index] = [Math.floor(i / topK), i % topK];
    return Math.floor((index * visible) / topK + (token % 3)) % visible;
  });
  const state = bench.up(decodeStateWords(start, count, 0));
  const counts = bench.up(new Int32Array(count).fill(Math.min(topK, visible)));
  const buffers = {
    ...{ queries: zeros(count * HEADS * DIM), ring: bench.up(new Uint16Array(ringRows * DIM * parts)) },
    ...{ window: WINDOW, ringRows, ratio, topK, sinks: zeros(HEADS), turnBack: null },
    entries: ratio > 0 ? bench.up(new Uint16Array(visible * DIM * parts)) : null,
    ...{ selected: topK > 0 ? bench.up(chosen) : null, counts: topK > 0 ? counts : null },
    ...{ parts: bench.room(plan.partBytes), stats: bench.room(plan.statBytes) },
    ...{ out: zeros(count * HEADS * DIM), quantized: null },
  };
  const name = `${nameOf(`attention, ratio ${ratio},`, place, parts)} (${plan.kernel} x ${plan.shares})`;
  const work = {
    name,
    bytes: count * keys * DIM * parts * HALF_BYTES,
    flops: 4 * count * keys * HEADS * DIM,
  };
  return meter.measure(work, () => attend(bench.ctx, shape, state, buffers));
}

function measureIndexer(meter: Meter, place: Place, parts: RowParts): BenchRow {
  const { bench } = meter;
  const { start, count } = place;
  const { heads, dim, topK, ratio } = INDEXER;
  const visible = Math.floor((start + count) / ratio);
  const shape = { heads, dim, topK, countTokens: count, mostEntries: visible, rowParts: parts };
  const plan = planSelection(bench.ctx.device, shape);
  const ones = (values: number) => bench.up(new Float32Array(values).fill(1));
  const entries = new Float16Array(visible * dim * parts).map((_, i) => ((i * 7) % 31) / 31);
  const state = bench.up(decodeStateWords(start, count, 0));
  const buffers = {
    ...{ queries: ones(count * heads * dim), headWeights: ones(count * heads), entries: bench.up(entries) },
    ...{ scores: bench.room(plan.scoreBytes), candidates: bench.room(plan.candidateBytes) },
    ...{ selected: bench.room(4 * count * topK), counts: bench.room(4 * count) },
  };
  const work = {
    name: nameOf("indexer", place, parts),
    bytes: count * visible * dim * parts * HALF_BYTES,
    flops: 2 * count * visible * heads * dim,
  };
  return meter.measure(work, () => selectEntries(bench.ctx, shape, ratio, state, buffers));
}

function measureCompressor(meter: Meter, place: Place, ratio: number, parts: RowParts): BenchRow {
  const { bench } = meter;
  const { start, count } = place;
  const projected = ratio === 4 ? 2 * DIM : DIM;
  const zeros = (values: number) => bench.up(new Float32Array(values));
  const entryRows = Math.floor((start + count) / ratio) + 1;
  const compressor = {
    ...{ ratio, width: DIM, projected, pairs: PAIRS, normEpsilon: 1e-6, slotBit: 0, rowParts: parts },
    ...{ slots: zeros(2 * compressorSlotValues(ratio, DIM, projected)), ape: zeros(ratio * projected) },
    ...{ normWeight: zeros(DIM), frequencies: zeros(PAIRS) },
    entries: bench.up(new Uint16Array(entryRows * DIM * parts)),
  };
  const [kv, gate] = [zeros(count * projected), zeros(count * projected)];
  const state = bench.up(decodeStateWords(start, count, 0));
  const work = {
    name: nameOf(`compressor, ratio ${ratio},`, place, parts),
    bytes: 8 * count * projected,
    flops: 0,
  };
  return meter.measure(work, () => compress(bench.ctx, { compressor, count, state, kv, gate }));
}

/** Steps with sequence state. `freed` is called between measurements to free the bench's device memory. */
export function measureSequences(meter: Meter, freed: () => void): BenchRow[] {
  const rows: BenchRow[] = [];
  const add = (row: BenchRow) => {
    rows.push(row);
    freed();
  };
  for (const place of PLACES) {
    for (const parts of KINDS) {
      for (const ratio of [0, 4, 128]) add(measureAttention(meter, place, ratio, parts));
      add(measureIndexer(meter, place, parts));
      for (const ratio of [4, 128]) add(measureCompressor(meter, place, ratio, parts));
    }
  }
  return rows;
}
