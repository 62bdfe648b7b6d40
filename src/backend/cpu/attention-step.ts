// Attention of one layer on native kernels: `scratch.x` to `scratch.blockOut`. See the reference's attention.ts for
// what is computed.
import { inputProducts, type Product, queryProducts } from "../layer-weights.ts";
import type { WeightMatrix } from "../native-kernels.ts";
import type { Segment } from "../token-batch.ts";
import { type CompressorCache, type CpuKv, nextSlot } from "./kv-state.ts";
import type { CompressorWeights, LayerWeights } from "./layer-weights.ts";
import type { Pass } from "./pass.ts";

/** The angles of a layer's kind. */
interface Angles {
  cosines: Float32Array;
  sines: Float32Array;
}

/** [tokens, hidden] to [tokens, hidden]. */
export function attentionStep(pass: Pass, layer: LayerWeights): void {
  const { kernels, workspace, spec, scratch, tokens } = pass;
  const { headCount, headDim, normEpsilon } = spec;
  const angles = anglesOf(pass, layer);
  multiply(pass, scratch.x, spec.hiddenSize, inputProducts(layer, scratch));
  kernels.normRows(workspace, tokens, spec.queryLoraRank, scratch.queryRank, layer.qANorm, normEpsilon);
  multiply(pass, scratch.queryRank, spec.queryLoraRank, queryProducts(layer, scratch));
  rotate(pass, scratch.q, headCount, headDim, angles, { normalize: true });
  kernels.normRows(workspace, tokens, headDim, scratch.kv, layer.kvNorm, normEpsilon);
  rotate(pass, scratch.kv, 1, headDim, angles, {});
  if (layer.indexer) {
    rotate(pass, scratch.indexerQueries, spec.indexerHeadCount, spec.indexerHeadDim, angles, {});
  }
  for (const segment of pass.batch.segments) attendSegment(pass, layer, segment);
  if (layer.indexer) traceSelection(pass, layer);
  rotate(pass, scratch.mixed, headCount, headDim, angles, { inverse: true });
  projectOutput(pass, layer);
}

function anglesOf({ scratch }: Pass, layer: LayerWeights): Angles {
  return layer.spec.compressRatio === 0
    ? { cosines: scratch.plainCosines, sines: scratch.plainSines }
    : { cosines: scratch.stretchedCosines, sines: scratch.stretchedSines };
}

function multiply(
  { kernels, workspace, tokens, options }: Pass,
  x: Float32Array,
  columns: number,
  products: Product<WeightMatrix, Float32Array>[],
): void {
  const { observeInputs } = options;
  if (observeInputs) {
    const inputs = x.subarray(0, tokens * columns);
    for (const [{ name }] of products) observeInputs(name, -1, inputs, tokens);
  }
  const matrices: WeightMatrix[] = products.map(([{ matrix }]) => matrix);
  kernels.multiply(
    workspace,
    tokens,
    x,
    matrices,
    products.map(([, out]) => out),
  );
}

function rotate(
  { kernels, workspace, spec, tokens }: Pass,
  rows: Float32Array,
  heads: number,
  dim: number,
  { cosines, sines }: Angles,
  { normalize = false, inverse = false }: { normalize?: boolean; inverse?: boolean },
): void {
  const pairs = spec.rope.dims / 2;
  const epsilon = spec.normEpsilon;
  kernels.rotateHeads(
    workspace,
    tokens,
    heads,
    dim,
    pairs,
    rows,
    cosines,
    sines,
    normalize,
    epsilon,
    inverse,
  );
}

/** The steps with state: one sequence's rows enter its caches, then its tokens attend. */
function attendSegment(pass: Pass, layer: LayerWeights, segment: Segment<CpuKv>): void {
  const { kernels, workspace, spec, scratch } = pass;
  const { headCount, headDim, slidingWindow, indexerTopK } = spec;
  const { start, count, kv: state } = segment;
  const cache = state.layers[layer.spec.index];
  storeWindowRows(pass, cache.ring, segment);
  if (layer.compressor) {
    const { compressorKv, compressorGate } = scratch;
    feedCompressor(pass, layer.compressor, cache.compressor!, segment, compressorKv, compressorGate);
  }
  if (layer.indexer) {
    const { indexerKv, indexerGate } = scratch;
    feedCompressor(pass, layer.indexer.compressor, cache.indexer!, segment, indexerKv, indexerGate);
    selectEntries(pass, cache.indexer!, segment);
  }
  const width = headCount * headDim;
  kernels.attend(
    workspace,
    start,
    count,
    headCount,
    headDim,
    slidingWindow,
    state.ringRows,
    layer.spec.compressRatio,
    layer.indexer ? indexerTopK : 0,
    rowsOf(scratch.q, segment, width),
    cache.ring,
    cache.compressor?.entries ?? NO_ENTRIES,
    layer.indexer ? rowsOf(scratch.selected, segment, indexerTopK) : null,
    layer.indexer ? rowsOf(scratch.selectedCounts, segment, 1) : null,
    layer.sinks,
    rowsOf(scratch.mixed, segment, width),
  );
}

const NO_ENTRIES = new Float32Array(0);

function storeWindowRows({ scratch, spec }: Pass, ring: Float32Array, segment: Segment<CpuKv>): void {
  const { headDim } = spec;
  const { ringRows } = segment.kv;
  for (let done = 0; done < segment.count; ) {
    const at = (segment.start + done) % ringRows;
    const rows = Math.min(segment.count - done, ringRows - at);
    const from = (segment.first + done) * headDim;
    ring.set(scratch.kv.subarray(from, from + rows * headDim), at * headDim);
    done += rows;
  }
}

function feedCompressor(
  { kernels, workspace, spec, frequencies }: Pass,
  weights: CompressorWeights,
  cache: CompressorCache,
  segment: Segment<CpuKv>,
  kv: Float32Array,
  gate: Float32Array,
): void {
  const { start, count } = segment;
  const now = cache.slots[cache.current];
  const next = cache.slots[nextSlot(cache, start, count)];
  kernels.compress(
    workspace,
    cache.ratio,
    cache.width,
    cache.projected,
    start,
    count,
    frequencies.stretched.length,
    rowsOf(kv, segment, cache.projected),
    rowsOf(gate, segment, cache.projected),
    now.kv,
    now.gate,
    next.kv,
    next.gate,
    now.previousKv,
    now.previousGate,
    next.previousKv,
    next.previousGate,
    weights.ape,
    weights.norm,
    spec.normEpsilon,
    frequencies.stretched,
    cache.entries,
  );
}

function selectEntries(
  { kernels, workspace, spec, scratch }: Pass,
  cache: CompressorCache,
  segment: Segment<CpuKv>,
): void {
  const { indexerHeadCount: heads, indexerHeadDim: dim, indexerTopK } = spec;
  kernels.selectEntries(
    workspace,
    segment.start,
    segment.count,
    cache.ratio,
    heads,
    dim,
    indexerTopK,
    rowsOf(scratch.indexerQueries, segment, heads * dim),
    rowsOf(scratch.indexerHeads, segment, heads),
    cache.entries,
    rowsOf(scratch.selected, segment, indexerTopK),
    rowsOf(scratch.selectedCounts, segment, 1),
  );
}

function projectOutput(pass: Pass, layer: LayerWeights): void {
  const { kernels, workspace, spec, scratch, tokens, options } = pass;
  const { outputGroupCount: groups, outputLoraRank: rank } = spec;
  const width = spec.headCount * spec.headDim;
  // The groups' inputs lie one after another in `mixed`: [tokens, groups, heads / groups * headDim].
  options.observeInputs?.(layer.outA.name, -1, scratch.mixed.subarray(0, tokens * width), tokens * groups);
  kernels.multiplyGroups(workspace, tokens, groups, layer.outA.matrix, scratch.mixed, scratch.low);
  multiply(pass, scratch.low, groups * rank, [[layer.outB, scratch.blockOut]]);
}

function rowsOf<Values extends Float32Array | Int32Array>(
  values: Values,
  { first, count }: Segment<CpuKv>,
  width: number,
): Values {
  return values.subarray(first * width, (first + count) * width) as Values;
}

function traceSelection({ options, scratch, spec, tokens }: Pass, layer: LayerWeights): void {
  if (options.trace === undefined) return;
  const { indexerTopK } = spec;
  const table = scratch.selected.slice(0, tokens * indexerTopK);
  for (let token = 0; token < tokens; token++) {
    table.fill(-1, token * indexerTopK + scratch.selectedCounts[token], (token + 1) * indexerTopK);
  }
  options.trace("indexer_topk", layer.spec.index, table);
}
