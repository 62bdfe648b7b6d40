// Attention of one layer on the device: `x` to `blockOut`. See the reference's attention.ts for what is computed and the
// CPU backend's attention-step.ts for the same order of steps.
import { inputProducts, queryProducts } from "../layer-weights.ts";
import type { Segment } from "../token-batch.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { CompressorState, CudaKv } from "./kv-state.ts";
import {
  type CudaCompressorWeights,
  type CudaLayerWeights,
  type CudaPass,
  mostTokens,
  multiply,
  observe,
  rowsOf,
  stateOf,
} from "./pass.ts";
import type { Attention, CompressArg } from "./sequence-steps.ts";

/** The angles of a layer's kind, [tokens, pairs]. */
interface Angles {
  cosines: DeviceBuffer;
  sines: DeviceBuffer;
}

/** [tokens, hidden] to [tokens, hidden]. */
export function attentionStep(pass: CudaPass, layer: CudaLayerWeights): void {
  const { ctx, steps, spec, buffers, tokens } = pass;
  const { headCount, headDim, normEpsilon, queryLoraRank } = spec;
  const angles = anglesOf(pass, layer);
  multiply(pass, buffers.x, spec.hiddenSize, inputProducts(layer, buffers));
  steps.normRows(ctx, tokens, queryLoraRank, buffers.queryRank, layer.qANorm, normEpsilon);
  multiply(pass, buffers.queryRank, spec.queryLoraRank, queryProducts(layer, buffers));
  rotate(pass, buffers.q, headCount, headDim, angles, true);
  steps.normRows(ctx, tokens, headDim, buffers.kv, layer.kvNorm, normEpsilon);
  rotate(pass, buffers.kv, 1, headDim, angles, false);
  if (layer.indexer) {
    rotate(pass, buffers.indexerQueries, spec.indexerHeadCount, spec.indexerHeadDim, angles, false);
  }
  for (const segment of pass.batch.segments) attendSegment(pass, layer, segment);
  if (layer.indexer) traceSelection(pass, layer);
  projectOutput(pass, layer);
}

function anglesOf({ buffers }: CudaPass, layer: CudaLayerWeights): Angles {
  return layer.spec.compressRatio === 0
    ? { cosines: buffers.plainCosines, sines: buffers.plainSines }
    : { cosines: buffers.stretchedCosines, sines: buffers.stretchedSines };
}

function rotate(
  { ctx, steps, spec, tokens }: CudaPass,
  rows: DeviceBuffer,
  heads: number,
  dim: number,
  { cosines, sines }: Angles,
  normalize: boolean,
): void {
  const pairs = spec.rope.dims / 2;
  steps.rotateHeads(ctx, tokens, heads, dim, pairs, rows, cosines, sines, normalize, spec.normEpsilon, false);
}

/** The steps with state: one sequence's rows enter its caches, then its tokens attend. */
function attendSegment(pass: CudaPass, layer: CudaLayerWeights, segment: Segment<CudaKv>): void {
  const { ctx, steps, spec, buffers } = pass;
  const own = segment.kv.layers[layer.spec.index];
  const state = stateOf(pass, segment);
  const { count, kv } = segment;
  steps.storeWindow(
    ctx,
    count,
    spec.headDim,
    kv.ringRows,
    kv.rowParts,
    state,
    rowsOf(buffers.kv, segment, spec.headDim),
    own.ring,
  );
  feedCompressors(pass, layer, segment);
  selectSegmentEntries(pass, layer, segment);
  attendSegmentRow(pass, layer, segment);
}

/** One sequence's rows enter its compressors. */
function feedCompressors(pass: CudaPass, layer: CudaLayerWeights, segment: Segment<CudaKv>): void {
  for (const each of compressorsOf(pass, layer, segment)) pass.steps.compress(pass.ctx, each);
}

/** What enters the layer's compressor, and its indexer's. */
export function compressorsOf(
  pass: CudaPass,
  layer: CudaLayerWeights,
  segment: Segment<CudaKv>,
): CompressArg[] {
  const { compressorKv, compressorGate, indexerKv, indexerGate } = pass.buffers;
  const { compressor, indexer } = segment.kv.layers[layer.spec.index];
  const fed: CompressArg[] = [];
  if (layer.compressor) {
    fed.push(compressArg(pass, layer.compressor, compressor!, segment, compressorKv, compressorGate));
  }
  if (layer.indexer) {
    fed.push(compressArg(pass, layer.indexer.compressor, indexer!, segment, indexerKv, indexerGate));
  }
  return fed;
}

/** The entries that a sequence's tokens attend to, where a layer chooses them. */
export function selectSegmentEntries(
  pass: CudaPass,
  layer: CudaLayerWeights,
  segment: Segment<CudaKv>,
): void {
  if (layer.indexer) selectEntries(pass, segment.kv.layers[layer.spec.index].indexer!, segment);
}

function compressArg(
  pass: CudaPass,
  weights: CudaCompressorWeights,
  own: CompressorState,
  segment: Segment<CudaKv>,
  kv: DeviceBuffer,
  gate: DeviceBuffer,
): CompressArg {
  const { spec, buffers } = pass;
  const pairs = spec.rope.dims / 2;
  return {
    compressor: {
      ...own,
      pairs,
      rowParts: segment.kv.rowParts,
      ...{ ape: weights.ape, normWeight: weights.norm, normEpsilon: spec.normEpsilon },
      frequencies: buffers.frequencies.slice(4 * pairs, 4 * pairs),
    },
    count: segment.count,
    state: stateOf(pass, segment),
    kv: rowsOf(kv, segment, own.projected),
    gate: rowsOf(gate, segment, own.projected),
  };
}

function selectEntries(pass: CudaPass, own: CompressorState, segment: Segment<CudaKv>): void {
  const { ctx, steps, spec, buffers, scratch } = pass;
  const { indexerHeadCount: heads, indexerHeadDim: dim, indexerTopK: topK } = spec;
  const mostEntries = Math.floor(mostTokens(pass, segment) / own.ratio);
  const { rowParts } = segment.kv;
  const shape = { heads, dim, topK, countTokens: segment.count, mostEntries, rowParts };
  steps.selectEntries(ctx, shape, own.ratio, stateOf(pass, segment), {
    queries: rowsOf(buffers.indexerQueries, segment, heads * dim),
    headWeights: rowsOf(buffers.indexerHeads, segment, heads),
    entries: own.entries,
    ...scratch.selection,
    selected: rowsOf(buffers.selected, segment, topK),
    counts: rowsOf(buffers.selectedCounts, segment, 1),
  });
}

/** A sequence's tokens attend: `q` to `mixed`, turned back. */
export function attendSegmentRow(
  pass: CudaPass,
  layer: CudaLayerWeights,
  segment: Segment<CudaKv>,
  quantized: Attention["quantized"] = null,
): boolean {
  const { ctx, steps, spec, buffers } = pass;
  const angles = anglesOf(pass, layer);
  const { headCount: heads, headDim: dim, slidingWindow: window, indexerTopK } = spec;
  const { compressRatio: ratio } = layer.spec;
  const own = segment.kv.layers[layer.spec.index];
  const pairs = spec.rope.dims / 2;
  const visible = ratio === 0 ? 0 : Math.floor(mostTokens(pass, segment) / ratio);
  const mostKeys = window + (layer.indexer ? Math.min(indexerTopK, visible) : visible);
  const { rowParts } = segment.kv;
  const shape = { heads, dim, countTokens: segment.count, mostKeys, rowParts };
  return steps.attend(ctx, shape, stateOf(pass, segment), {
    queries: rowsOf(buffers.q, segment, heads * dim),
    ...{ ring: own.ring, window, ringRows: segment.kv.ringRows, ratio },
    entries: own.compressor?.entries ?? null,
    selected: layer.indexer ? rowsOf(buffers.selected, segment, indexerTopK) : null,
    counts: layer.indexer ? rowsOf(buffers.selectedCounts, segment, 1) : null,
    topK: layer.indexer ? indexerTopK : 0,
    ...{ sinks: layer.sinks, parts: buffers.parts, stats: buffers.stats },
    turnBack: {
      cosines: rowsOf(angles.cosines, segment, pairs),
      sines: rowsOf(angles.sines, segment, pairs),
      pairs,
    },
    ...{ out: rowsOf(buffers.mixed, segment, heads * dim), quantized },
  });
}

function projectOutput(pass: CudaPass, layer: CudaLayerWeights): void {
  const { ctx, steps, work, spec, buffers, tokens } = pass;
  const { outputGroupCount: groups, outputLoraRank: rank } = spec;
  const width = spec.headCount * spec.headDim;
  // The groups' inputs lie one after another in `mixed`: [tokens, groups, heads / groups * headDim].
  observe(pass, layer.outA.name, buffers.mixed, tokens * groups, width / groups);
  steps.multiplyGroups(ctx, tokens, groups, layer.outA.matrix, buffers.mixed, buffers.low, work.input);
  multiply(pass, buffers.low, groups * rank, [[layer.outB, buffers.blockOut]]);
}

function traceSelection({ ctx, options, buffers, spec, tokens }: CudaPass, layer: CudaLayerWeights): void {
  if (options.trace === undefined) return;
  const { indexerTopK } = spec;
  const table = ctx.stream.read(buffers.selected, new Int32Array(tokens * indexerTopK));
  const counts = ctx.stream.read(buffers.selectedCounts, new Int32Array(tokens));
  for (let token = 0; token < tokens; token++) {
    table.fill(-1, token * indexerTopK + counts[token], (token + 1) * indexerTopK);
  }
  options.trace("indexer_topk", layer.spec.index, table);
}
