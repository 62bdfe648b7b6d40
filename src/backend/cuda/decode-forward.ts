// One token of one sequence through the layers, as few and as long launches as the data allows: a chain of steps from each layer's
// attention to the next one's, what one step leaves is what the next reads, the streams are written where a block's output is
// made, and every step starts on its weights while the one before ends. The same results as the steps of forward.ts, which serve
// everything else.
import type { Segment } from "../token-batch.ts";
import { attendSegmentRow, compressorsOf, selectSegmentEntries } from "./attention-step.ts";
import { DecodeChain, type StreamProduct } from "./decode-chain.ts";
import { type ChainShape, type QuantizedRows, quantizedRows } from "./decode-plans.ts";
import { decodeRows, hyperStart } from "./decode-steps.ts";
import type { HyperJoinArg, HyperTailArg } from "./decode-structs.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { CudaKv } from "./kv-state.ts";
import type { DeviceMatrix } from "./matrix.ts";
import type { CudaHyperWeights, CudaLayerWeights, CudaModelWeights, CudaPass } from "./pass.ts";
import { stateOf } from "./pass.ts";

/** From the token's embedding in `streams` to the last layer's streams, and to logits [vocab] if `withHead`. */
export function enqueueDecode(
  pass: CudaPass,
  model: CudaModelWeights,
  shape: ChainShape,
  withHead: boolean,
): void {
  const chain = new DecodeChain(pass.ctx, shape);
  hyperStart(pass.ctx, tailOf(pass, model.layers[0].hcAttn.fn));
  model.layers.forEach((layer, index) => {
    const next = model.layers[index + 1]?.hcAttn ?? model.outputHc;
    attention(pass, chain, layer);
    experts(pass, chain, layer, next.fn);
  });
  if (withHead) head(pass, chain, model);
  chain.launch();
}

function head(pass: CudaPass, chain: DecodeChain, model: CudaModelWeights): void {
  const { headX: x, logits } = pass.buffers;
  const { headX: quantized } = rowsOf(pass);
  const join = { ...joinOf(pass, model.outputHc, model.outputNorm), x, quantized, post: null, comb: null };
  chain.products([{ matrix: model.head.matrix, x, quantized, out: logits }], { join });
}

/** Where the partial sums lie: the head's streams are not used beside them. */
function partialsOf({ buffers }: CudaPass): DeviceBuffer {
  return buffers.headStreams;
}

function tailOf(pass: CudaPass, fn: DeviceMatrix): HyperTailArg {
  const { streams, post, comb } = pass.buffers;
  return { streams, post, comb, fn, partials: partialsOf(pass), hidden: pass.spec.hiddenSize };
}

/** The int8 rows: this path has the products' working memory for itself. */
function rowsOf({ spec, work }: CudaPass): QuantizedRows {
  return quantizedRows(spec, work.input.buffer);
}

function joinOf(pass: CudaPass, hyper: CudaHyperWeights, normWeight: DeviceBuffer) {
  const { spec } = pass;
  return {
    ...{ streams: pass.buffers.streams, partials: partialsOf(pass), normWeight },
    ...{ base: hyper.base, scale: hyper.scale, hidden: spec.hiddenSize },
    parts: Math.ceil(spec.hiddenSize / 32),
    iterations: spec.sinkhornIterations,
    ...{ normEpsilon: spec.normEpsilon, hyperEpsilon: spec.hyperEpsilon },
  };
}

/** A block's input, and what its output is written with. */
function blockJoin(pass: CudaPass, hyper: CudaHyperWeights, normWeight: DeviceBuffer): HyperJoinArg {
  const { x, post, comb } = pass.buffers;
  return { ...joinOf(pass, hyper, normWeight), x, quantized: rowsOf(pass).x, post, comb };
}

function attention(pass: CudaPass, chain: DecodeChain, layer: CudaLayerWeights): void {
  const { spec, buffers } = pass;
  const { indexer } = layer;
  const [segment] = pass.batch.segments;
  const { queryRank: quantized, querySquares: squares } = rowsOf(pass);
  chain.products(inputProducts(pass, layer), { join: blockJoin(pass, layer.hcAttn, layer.attnNorm) });
  const x = buffers.queryRank;
  const queries: StreamProduct[] = [{ matrix: layer.qB.matrix, x, quantized, out: buffers.q }];
  if (indexer) queries.push({ matrix: indexer.qB.matrix, x, quantized, out: buffers.indexerQueries });
  const count = Math.ceil(spec.queryLoraRank / 32);
  chain.products(queries, { norm: { squares, count, epsilon: spec.normEpsilon } });
  chain.launch();
  turnRows(pass, layer, segment);
  selectSegmentEntries(pass, layer, segment);
  const { outputGroupCount: groups, headCount, headDim } = spec;
  const mixed = { buffer: rowsOf(pass).mixed, groupHeads: headCount / groups };
  const isQuantized = attendSegmentRow(pass, layer, segment, headDim % 128 === 0 ? mixed : null);
  projectOutput(pass, chain, layer, isQuantized);
}

/** All that reads the block's input. The query rank is left with its norm's weight, its mean square to whoever reads it. */
function inputProducts(pass: CudaPass, layer: CudaLayerWeights): StreamProduct[] {
  const { buffers, spec } = pass;
  const { compressor, indexer } = layer;
  const rows = rowsOf(pass);
  const input = { x: buffers.x, quantized: rows.x };
  const products: StreamProduct[] = [
    {
      ...{ ...input, matrix: layer.qA.matrix, out: buffers.queryRank, outWeight: layer.qANorm },
      outQuantized: { buffer: rows.queryRank, cols: spec.queryLoraRank, first: 0 },
      outSquares: rows.querySquares,
    },
    { ...input, matrix: layer.kv.matrix, out: buffers.kv },
  ];
  if (compressor) {
    products.push({ ...input, matrix: compressor.kv.matrix, out: buffers.compressorKv });
    products.push({ ...input, matrix: compressor.gate.matrix, out: buffers.compressorGate });
  }
  if (indexer) {
    products.push({ ...input, matrix: indexer.compressor.kv.matrix, out: buffers.indexerKv });
    products.push({ ...input, matrix: indexer.compressor.gate.matrix, out: buffers.indexerGate });
    products.push({ ...input, matrix: indexer.proj.matrix, out: buffers.indexerHeads });
  }
  return products;
}

function turnRows(pass: CudaPass, layer: CudaLayerWeights, segment: Segment<CudaKv>): void {
  const { ctx, spec, buffers } = pass;
  const plain = layer.spec.compressRatio === 0;
  decodeRows(ctx, {
    state: stateOf(pass, segment),
    ...{ queries: buffers.q, indexerQueries: layer.indexer ? buffers.indexerQueries : null },
    ...{ kv: buffers.kv, normWeight: layer.kvNorm },
    cosines: plain ? buffers.plainCosines : buffers.stretchedCosines,
    sines: plain ? buffers.plainSines : buffers.stretchedSines,
    ring: segment.kv.layers[layer.spec.index].ring,
    ...{ heads: spec.headCount, dim: spec.headDim },
    ...{ indexerHeads: layer.indexer ? spec.indexerHeadCount : 0, indexerDim: spec.indexerHeadDim },
    ...{ pairs: spec.rope.dims / 2, ringRows: segment.kv.ringRows, epsilon: spec.normEpsilon },
    rowParts: segment.kv.rowParts,
    compressors: compressorsOf(pass, layer, segment),
  });
}

/** The groups' products side by side, then the one that ends the block. */
function projectOutput(
  pass: CudaPass,
  chain: DecodeChain,
  layer: CudaLayerWeights,
  isQuantized: boolean,
): void {
  const { spec, buffers } = pass;
  const { outputGroupCount: groups, outputLoraRank: rank } = spec;
  const { matrix } = layer.outA;
  const groupBytes = (matrix.sliceBytes / matrix.rows) * rank;
  const { low, mixed } = rowsOf(pass);
  const mixedBytes = mixed.bytes / groups;
  const products = Array.from({ length: groups }, (_, group) => ({
    matrix: {
      ...matrix,
      ...{ rows: rank, sliceBytes: groupBytes },
      buffer: matrix.buffer.slice(group * groupBytes, groupBytes),
    },
    x: buffers.mixed.slice(4 * group * matrix.cols),
    quantized: isQuantized ? mixed.slice(group * mixedBytes, mixedBytes) : null,
    out: buffers.low.slice(4 * group * rank),
    outQuantized: { buffer: low, cols: groups * rank, first: group * rank },
  }));
  chain.products(products);
  const output = { matrix: layer.outB.matrix, x: buffers.low, quantized: low };
  chain.products([output], { tail: tailOf(pass, layer.hcFfn.fn) });
}

function experts(pass: CudaPass, chain: DecodeChain, layer: CudaLayerWeights, nextFn: DeviceMatrix): void {
  const { spec, buffers } = pass;
  const rows = rowsOf(pass);
  const quantized = rows.x;
  const { x, expertIds: ids, expertWeights: weights, h, sharedH } = buffers;
  const { expertCount, expertUsedCount: used } = spec;
  chain.route({
    ...{ router: layer.router.matrix, sharedGate: layer.gateShared.matrix, sharedUp: layer.upShared.matrix },
    ...{ bias: layer.bias, table: layer.table, experts: expertCount, used },
    ...{ weightsScale: spec.expertWeightsScale, normalize: spec.expertWeightsNorm },
    mark: layer.spec.index + 1,
    join: blockJoin(pass, layer.hcFfn, layer.ffnNorm),
    ...{ quantized, sharedQuantized: rows.sharedH },
    ...{ x, tokenIds: buffers.tokenIds, scores: buffers.routerLogits, sharedH, ids, weights },
    ...{ flag: buffers.flag, sharedLimit: layer.spec.swigluClampShared },
  });
  const gate = layer.gateExps.matrix;
  chain.up({
    ...{ gate, up: layer.upExps.matrix, quantized, h, hQuantized: rows.h },
    ...{ limit: layer.spec.swigluClampExperts, used },
  });
  chain.down({
    ...{ down: layer.downExps.matrix, sharedDown: layer.downShared.matrix },
    tail: tailOf(pass, nextFn),
    ...{ h: rows.h, sharedH: rows.sharedH, used },
  });
}
