// Attention of one layer: low-rank queries, one key/value head whose key is also its value, a sliding window plus
// compressed entries, a learned sink per head, and a grouped low-rank output projection.
import { type CompressorSettings, compress, joinRows } from "./compressor.ts";
import type { Batch, LayerPass, Segment } from "./forward.ts";
import { indexerScores, selectTop } from "./indexer.ts";
import type { CompressorState, LayerState } from "./kv-state.ts";
import { dotProduct, linear } from "./linear.ts";
import { rmsNorm } from "./norm.ts";
import { rotate } from "./rope.ts";

/** [tokens, hidden] to [tokens, hidden]. Entries and window rows reach the KV state when `pass.commits` run. */
export function attention(pass: LayerPass, x: Float32Array): Float32Array {
  const { weights, spec, batch, frequencies, observe } = pass;
  const { headDim, normEpsilon, hiddenSize: hidden } = spec;
  observe(weights.qA, -1, x);
  observe(weights.kv, -1, x);
  const queryRank = rmsNorm(
    linear(weights.qA.data, hidden, x),
    spec.queryLoraRank,
    normEpsilon,
    weights.qANorm.data,
  );
  observe(weights.qB, -1, queryRank);
  const q = rmsNorm(linear(weights.qB.data, spec.queryLoraRank, queryRank), headDim, normEpsilon); // [tokens, heads, headDim]
  rotate(q, headDim, batch.positions, frequencies, 1);
  const kv = rmsNorm(linear(weights.kv.data, hidden, x), headDim, normEpsilon, weights.kvNorm.data); // [tokens, headDim]
  rotate(kv, headDim, batch.positions, frequencies, 1);
  pass.rounding.keyValueRows(kv, headDim);

  compressBatch(pass, x);
  const selected = selectEntries(pass, x, queryRank);
  const mixed = new Float32Array(q.length); // [tokens, heads, headDim]
  for (const segment of batch.segments) attendSegment(pass, segment, q, kv, selected, mixed);
  rotate(mixed, headDim, batch.positions, frequencies, -1);
  return projectOutput(pass, mixed);
}

/** Feeds the layer's compressors with the batch; their new entries are then readable by this very batch. */
function compressBatch(pass: LayerPass, x: Float32Array): void {
  const { weights, spec, batch, observe } = pass;
  const settings = { normEpsilon: spec.normEpsilon, frequencies: pass.frequencies };
  const feed = (
    tensors: NonNullable<typeof weights.compressor>,
    stateOf: (layer: LayerState) => CompressorState | undefined,
    roundEntry: CompressorSettings["roundEntry"],
  ) => {
    observe(tensors.kv, -1, x);
    observe(tensors.gate, -1, x);
    const kv = linear(tensors.kv.data, spec.hiddenSize, x); // [tokens, projected]
    const gate = linear(tensors.gate.data, spec.hiddenSize, x);
    for (const segment of batch.segments) {
      const state = stateOf(segment.kv.layers[weights.spec.index])!;
      const rows = rowsOf(segment, batch, kv);
      const gates = rowsOf(segment, batch, gate);
      pass.commits.push(compress(state, tensors, rows, gates, segment.start, { ...settings, roundEntry }));
    }
  };
  if (weights.compressor) {
    feed(
      weights.compressor,
      (layer) => layer.compressor,
      (entry) => pass.rounding.keyValueRows(entry, spec.headDim),
    );
  }
  if (weights.indexer) {
    feed(
      weights.indexer.compressor,
      (layer) => layer.indexer,
      (entry) => pass.rounding.indexerEntries(entry, spec.indexerHeadDim),
    );
  }
}

/** Per token the compressed entries it attends to: the indexer's choice, or all that are visible. */
function selectEntries(pass: LayerPass, x: Float32Array, queryRank: Float32Array): Int32Array[] {
  const { weights, spec, batch, observe } = pass;
  const { index, compressRatio } = weights.spec;
  const visibleAt = (position: number) =>
    compressRatio === 0 ? 0 : Math.floor((position + 1) / compressRatio);
  const { indexer } = weights;
  if (indexer === undefined) {
    return Array.from(batch.positions, (position) =>
      Int32Array.from({ length: visibleAt(position) }, (_, i) => i),
    );
  }
  observe(indexer.qB, -1, queryRank);
  observe(indexer.proj, -1, x);
  const queries = linear(indexer.qB.data, spec.queryLoraRank, queryRank); // [tokens, indexerHeads, indexerHeadDim]
  rotate(queries, spec.indexerHeadDim, batch.positions, pass.frequencies, 1);
  pass.rounding.indexerQueries(queries, spec.indexerHeadDim);
  const headWeights = linear(indexer.proj.data, spec.hiddenSize, x); // [tokens, indexerHeads]
  const queryWidth = spec.indexerHeadCount * spec.indexerHeadDim;
  const selected: Int32Array[] = [];
  for (const segment of batch.segments) {
    const { entries } = segment.kv.layers[index].indexer!;
    for (let row = segment.first; row < segment.first + segment.count; row++) {
      const query = queries.subarray(row * queryWidth, (row + 1) * queryWidth);
      const perHead = headWeights.subarray(row * spec.indexerHeadCount, (row + 1) * spec.indexerHeadCount);
      const scores = indexerScores(query, perHead, entries, visibleAt(batch.positions[row]), spec);
      selected[row] = selectTop(scores, spec.indexerTopK);
    }
  }
  traceSelection(pass, selected);
  return selected;
}

function attendSegment(
  pass: LayerPass,
  segment: Segment,
  q: Float32Array,
  kv: Float32Array,
  selected: readonly Int32Array[],
  mixed: Float32Array,
): void {
  const { spec, batch, weights } = pass;
  const { headDim, slidingWindow } = spec;
  const state = segment.kv.layers[weights.spec.index];
  const keptRows = Math.min(segment.start, slidingWindow);
  // Window rows from position start - keptRows on: what the state kept, then this batch's own.
  const window = joinRows(state.window.subarray(0, keptRows * headDim), rowsOf(segment, batch, kv));
  for (let i = 0; i < segment.count; i++) {
    const row = segment.first + i;
    const last = keptRows + i; // the token's own row in `window`
    const keys: KeyRows[] = [];
    for (let key = Math.max(0, last - slidingWindow + 1); key <= last; key++) {
      keys.push({ data: window, offset: key * headDim });
    }
    for (const entry of selected[row])
      keys.push({ data: state.compressor!.entries, offset: entry * headDim });
    attendToken(pass, q, row, keys, mixed);
  }
  pass.commits.push(() => {
    state.window.set(window.subarray(Math.max(0, window.length - slidingWindow * headDim)));
  });
}

/** Where one key (= value) row lies. */
interface KeyRows {
  data: Float32Array;
  offset: number;
}

/** softmax(q . k / sqrt(headDim), with the head's sink in the denominator only) times the same rows. */
function attendToken(
  pass: LayerPass,
  q: Float32Array,
  row: number,
  keys: KeyRows[],
  mixed: Float32Array,
): void {
  const { headCount, headDim } = pass.spec;
  const sinks = pass.weights.sinks.data;
  const scale = 1 / Math.sqrt(headDim);
  const scores = new Float64Array(keys.length);
  for (let head = 0; head < headCount; head++) {
    const start = (row * headCount + head) * headDim;
    let max = sinks[head];
    for (let i = 0; i < keys.length; i++) {
      scores[i] = scale * dotProduct(q, start, keys[i].data, keys[i].offset, headDim);
      if (scores[i] > max) max = scores[i];
    }
    let total = Math.exp(sinks[head] - max);
    for (let i = 0; i < keys.length; i++) {
      scores[i] = Math.exp(scores[i] - max);
      total += scores[i];
    }
    const sums = new Float64Array(headDim);
    for (let i = 0; i < keys.length; i++) {
      const weight = scores[i] / total;
      const { data, offset } = keys[i];
      for (let channel = 0; channel < headDim; channel++) sums[channel] += weight * data[offset + channel];
    }
    mixed.set(sums, start);
  }
}

/** Each group of heads has its own rows of output_a; the joined results go through output_b. */
function projectOutput(pass: LayerPass, mixed: Float32Array): Float32Array {
  const { weights, spec, batch, observe } = pass;
  const { outputGroupCount: groups, outputLoraRank: rank } = spec;
  const groupWidth = (spec.headCount / groups) * spec.headDim;
  const tokens = batch.positions.length;
  observe(weights.outA, -1, mixed);
  const joined = new Float32Array(tokens * groups * rank); // [tokens, groups, rank]
  const input = new Float32Array(tokens * groupWidth);
  for (let group = 0; group < groups; group++) {
    for (let token = 0; token < tokens; token++) {
      const from = (token * groups + group) * groupWidth;
      input.set(mixed.subarray(from, from + groupWidth), token * groupWidth);
    }
    const low = linear(weights.outA.data, groupWidth, input, group * rank, rank); // [tokens, rank]
    for (let token = 0; token < tokens; token++) {
      joined.set(low.subarray(token * rank, (token + 1) * rank), (token * groups + group) * rank);
    }
  }
  observe(weights.outB, -1, joined);
  return linear(weights.outB.data, groups * rank, joined);
}

function rowsOf(segment: Segment, batch: Batch, rows: Float32Array): Float32Array {
  const width = rows.length / batch.positions.length;
  return rows.subarray(segment.first * width, (segment.first + segment.count) * width);
}

function traceSelection(pass: LayerPass, selected: readonly Int32Array[]): void {
  if (pass.trace === undefined) return;
  const { indexerTopK } = pass.spec;
  const table = new Int32Array(selected.length * indexerTopK).fill(-1); // [tokens, topK]
  selected.forEach((entries, row) => {
    table.set(entries, row * indexerTopK);
  });
  pass.trace("indexer_topk", pass.weights.spec.index, table);
}
