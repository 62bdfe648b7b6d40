// One token of one sequence through the layers, as few and as long launches as the data allows: what one kernel leaves is
// what the next reads, the streams are written where a block's output is made, and every kernel starts on its weights while
// the one before ends. The same results as the steps of forward.ts, which serve everything else.
import type { ModelSpec } from "../../model/model-spec.ts";
import type { Segment } from "../token-batch.ts";
import { attendSegmentRow, feedCompressors, selectSegmentEntries } from "./attention-step.ts";
import {
  decodeDown,
  decodeRoute,
  decodeRows,
  decodeUp,
  hyperJoin,
  hyperStart,
  streamIntoStreams,
  streamProducts,
} from "./decode-steps.ts";
import type { HyperTailArg } from "./decode-structs.ts";
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
    join(pass, layer.hcAttn, layer.attnNorm);
    attention(pass, layer);
    join(pass, layer.hcFfn, layer.ffnNorm);
    experts(pass, layer, next.fn);
  });
}

/** logits [vocab] from the streams that `enqueueDecode` left. */
export function enqueueDecodeHead(pass: CudaPass, model: CudaModelWeights): void {
  const { ctx, buffers, spec } = pass;
  const { headX, logits } = buffers;
  hyperJoin(ctx, {
    ...joinOf(pass, spec, model.outputHc, model.outputNorm),
    ...{ x: headX, post: null, comb: null },
  });
  streamProducts(ctx, [{ matrix: model.head.matrix, x: headX, out: logits }]);
}

/** Where the partial sums lie: the head's streams are not used beside them. */
function partialsOf({ buffers }: CudaPass): DeviceBuffer {
  return buffers.headStreams;
}

function tailOf(pass: CudaPass, fn: DeviceMatrix): HyperTailArg {
  const { streams, post, comb } = pass.buffers;
  return { streams, post, comb, fn, partials: partialsOf(pass), hidden: pass.spec.hiddenSize };
}

function joinOf(pass: CudaPass, spec: ModelSpec, hyper: CudaHyperWeights, normWeight: DeviceBuffer) {
  return {
    ...{ streams: pass.buffers.streams, partials: partialsOf(pass), normWeight },
    ...{ base: hyper.base, scale: hyper.scale, hidden: spec.hiddenSize },
    parts: Math.ceil(spec.hiddenSize / 32),
    iterations: spec.sinkhornIterations,
    ...{ normEpsilon: spec.normEpsilon, hyperEpsilon: spec.hyperEpsilon },
  };
}

function join(pass: CudaPass, hyper: CudaHyperWeights, normWeight: DeviceBuffer): void {
  const { ctx, buffers, spec } = pass;
  const { x, post, comb } = buffers;
  hyperJoin(ctx, { ...joinOf(pass, spec, hyper, normWeight), x, post, comb });
}

function attention(pass: CudaPass, layer: CudaLayerWeights): void {
  const { ctx, spec, buffers } = pass;
  const { compressor, indexer } = layer;
  const [segment] = pass.batch.segments;
  const { x, queryRank } = buffers;
  const inputs = [
    { matrix: layer.qA.matrix, x, out: queryRank },
    { matrix: layer.kv.matrix, x, out: buffers.kv },
  ];
  if (compressor) {
    inputs.push({ matrix: compressor.kv.matrix, x, out: buffers.compressorKv });
    inputs.push({ matrix: compressor.gate.matrix, x, out: buffers.compressorGate });
  }
  if (indexer) {
    inputs.push({ matrix: indexer.compressor.kv.matrix, x, out: buffers.indexerKv });
    inputs.push({ matrix: indexer.compressor.gate.matrix, x, out: buffers.indexerGate });
    inputs.push({ matrix: indexer.proj.matrix, x, out: buffers.indexerHeads });
  }
  streamProducts(ctx, inputs);
  feedCompressors(pass, layer, segment);
  const queries = [{ matrix: layer.qB.matrix, x: queryRank, out: buffers.q }];
  if (indexer) queries.push({ matrix: indexer.qB.matrix, x: queryRank, out: buffers.indexerQueries });
  streamProducts(ctx, queries, { weight: layer.qANorm, epsilon: spec.normEpsilon });
  turnRows(pass, layer, segment);
  selectSegmentEntries(pass, layer, segment);
  attendSegmentRow(pass, layer, segment);
  projectOutput(pass, layer);
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
  });
}

/** The groups' products side by side, then the one that ends the block. */
function projectOutput(pass: CudaPass, layer: CudaLayerWeights): void {
  const { ctx, spec, buffers } = pass;
  const { outputGroupCount: groups, outputLoraRank: rank } = spec;
  const { matrix } = layer.outA;
  const groupBytes = (matrix.sliceBytes / matrix.rows) * rank;
  const products = Array.from({ length: groups }, (_, group) => ({
    matrix: {
      ...matrix,
      ...{ rows: rank, sliceBytes: groupBytes },
      buffer: matrix.buffer.slice(group * groupBytes, groupBytes),
    },
    x: buffers.mixed.slice(4 * group * matrix.cols),
    out: buffers.low.slice(4 * group * rank),
  }));
  streamProducts(ctx, products);
  streamIntoStreams(ctx, { matrix: layer.outB.matrix, x: buffers.low }, tailOf(pass, layer.hcFfn.fn));
}

function experts(pass: CudaPass, layer: CudaLayerWeights, nextFn: DeviceMatrix): void {
  const { ctx, spec, buffers } = pass;
  const { x, expertIds: ids, expertWeights: weights, h, sharedH } = buffers;
  const { expertCount, expertUsedCount: used } = spec;
  decodeRoute(ctx, {
    ...{ router: layer.router.matrix, sharedGate: layer.gateShared.matrix, sharedUp: layer.upShared.matrix },
    ...{ bias: layer.bias, table: layer.table, experts: expertCount, used },
    ...{ weightsScale: spec.expertWeightsScale, normalize: spec.expertWeightsNorm },
    mark: layer.spec.index + 1,
    ...{ x, tokenIds: buffers.tokenIds, logits: buffers.routerLogits, sharedH, ids, weights },
    ...{ flag: buffers.flag, sharedLimit: layer.spec.swigluClampShared },
  });
  const gate = layer.gateExps.matrix;
  decodeUp(ctx, { gate, up: layer.upExps.matrix, x, ids, h, limit: layer.spec.swigluClampExperts, used });
  decodeDown(ctx, {
    ...{ down: layer.downExps.matrix, sharedDown: layer.downShared.matrix },
    tail: tailOf(pass, nextFn),
    ...{ h, sharedH, ids, weights, used },
  });
}
