// One token of one sequence through the layers, as few and as long launches as the data allows: what one kernel leaves is
// what the next reads, the streams are written where a block's output is made, and every kernel starts on its weights while
// the one before ends. The same results as the steps of forward.ts, which serve everything else.
import type { Segment } from "../token-batch.ts";
import { attendSegmentRow, compressorsOf, selectSegmentEntries } from "./attention-step.ts";
import { type QuantizedRows, quantizedRows } from "./decode-plans.ts";
import {
  decodeDown,
  decodeRoute,
  decodeRows,
  decodeUp,
  hyperJoin,
  hyperStart,
  type StreamProduct,
  streamProducts,
} from "./decode-steps.ts";
import type { HyperJoinArg, HyperTailArg } from "./decode-structs.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { CudaKv } from "./kv-state.ts";
import type { DeviceMatrix } from "./matrix.ts";
import type { CudaHyperWeights, CudaLayerWeights, CudaModelWeights, CudaPass } from "./pass.ts";
import { stateOf } from "./pass.ts";

/** From the token's embedding in `streams` to the last layer's streams and their partial sums for the head. */
export function enqueueDecode(pass: CudaPass, model: CudaModelWeights): void {
  hyperStart(pass.ctx, tailOf(pass, model.layers[0].hcAttn.fn));
  model.layers.forEach((layer, index) => {
    const next = model.layers[index + 1]?.hcAttn ?? model.outputHc;
    attention(pass, layer, join(pass, layer.hcAttn, layer.attnNorm));
    experts(pass, layer, join(pass, layer.hcFfn, layer.ffnNorm), next.fn);
  });
}

/** logits [vocab] from the streams that `enqueueDecode` left. */
export function enqueueDecodeHead(pass: CudaPass, model: CudaModelWeights): void {
  const { ctx, buffers } = pass;
  const { headX: x, logits } = buffers;
  const { headX: quantized } = rowsOf(pass);
  const read = { ...joinOf(pass, model.outputHc, model.outputNorm), x, quantized, post: null, comb: null };
  hyperJoin(ctx, read);
  streamProducts(ctx, [{ matrix: model.head.matrix, x, quantized, out: logits }]);
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

/** A block's input; what remains of the read is for a block of the next launch. */
function join(pass: CudaPass, hyper: CudaHyperWeights, normWeight: DeviceBuffer): HyperJoinArg {
  const { x, post, comb } = pass.buffers;
  const read = { ...joinOf(pass, hyper, normWeight), x, quantized: rowsOf(pass).x, post, comb };
  hyperJoin(pass.ctx, read);
  return read;
}

function attention(pass: CudaPass, layer: CudaLayerWeights, balance: HyperJoinArg): void {
  const { ctx, spec, buffers } = pass;
  const { indexer } = layer;
  const [segment] = pass.batch.segments;
  const { queryRank: quantized, querySquares: squares } = rowsOf(pass);
  streamProducts(ctx, inputProducts(pass, layer), { balance });
  const x = buffers.queryRank;
  const queries: StreamProduct[] = [{ matrix: layer.qB.matrix, x, quantized, out: buffers.q }];
  if (indexer) queries.push({ matrix: indexer.qB.matrix, x, quantized, out: buffers.indexerQueries });
  const count = Math.ceil(spec.queryLoraRank / 32);
  streamProducts(ctx, queries, { norm: { squares, count, epsilon: spec.normEpsilon } });
  turnRows(pass, layer, segment);
  selectSegmentEntries(pass, layer, segment);
  attendSegmentRow(pass, layer, segment);
  projectOutput(pass, layer);
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
function projectOutput(pass: CudaPass, layer: CudaLayerWeights): void {
  const { ctx, spec, buffers } = pass;
  const { outputGroupCount: groups, outputLoraRank: rank } = spec;
  const { matrix } = layer.outA;
  const groupBytes = (matrix.sliceBytes / matrix.rows) * rank;
  const low = rowsOf(pass).low;
  const products = Array.from({ length: groups }, (_, group) => ({
    matrix: {
      ...matrix,
      ...{ rows: rank, sliceBytes: groupBytes },
      buffer: matrix.buffer.slice(group * groupBytes, groupBytes),
    },
    x: buffers.mixed.slice(4 * group * matrix.cols),
    out: buffers.low.slice(4 * group * rank),
    outQuantized: { buffer: low, cols: groups * rank, first: group * rank },
  }));
  streamProducts(ctx, products);
  const output = { matrix: layer.outB.matrix, x: buffers.low, quantized: low };
  streamProducts(ctx, [output], { tail: tailOf(pass, layer.hcFfn.fn) });
}

function experts(pass: CudaPass, layer: CudaLayerWeights, balance: HyperJoinArg, nextFn: DeviceMatrix): void {
  const { ctx, spec, buffers } = pass;
  const rows = rowsOf(pass);
  const quantized = rows.x;
  const { x, expertIds: ids, expertWeights: weights, h, sharedH } = buffers;
  const { expertCount, expertUsedCount: used } = spec;
  decodeRoute(ctx, {
    ...{ router: layer.router.matrix, sharedGate: layer.gateShared.matrix, sharedUp: layer.upShared.matrix },
    ...{ bias: layer.bias, table: layer.table, experts: expertCount, used },
    ...{ weightsScale: spec.expertWeightsScale, normalize: spec.expertWeightsNorm },
    mark: layer.spec.index + 1,
    ...{ balance, quantized, sharedQuantized: rows.sharedH },
    ...{ x, tokenIds: buffers.tokenIds, logits: buffers.routerLogits, sharedH, ids, weights },
    ...{ flag: buffers.flag, sharedLimit: layer.spec.swigluClampShared },
  });
  const gate = layer.gateExps.matrix;
  decodeUp(ctx, {
    ...{ gate, up: layer.upExps.matrix, x, quantized, ids, h, hQuantized: rows.h },
    ...{ limit: layer.spec.swigluClampExperts, used },
  });
  decodeDown(ctx, {
    ...{ down: layer.downExps.matrix, sharedDown: layer.downShared.matrix },
    tail: tailOf(pass, nextFn),
    ...{ h: rows.h, sharedH: rows.sharedH, ids, weights, used },
  });
}
