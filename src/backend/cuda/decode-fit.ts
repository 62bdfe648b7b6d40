// Which models and devices the kernels that decode one token serve.
import {
  blocksOf,
  type ChainShape,
  canRead,
  cutDown,
  cutWorks,
  isInt8,
  MOST_EXPERTS,
  MOST_USED_EXPERTS,
  pairWork,
  quantizedRowBytes,
  STREAM_THREADS,
  stagedBytes,
  streamRoom,
} from "./decode-plans.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { DeviceMatrix } from "./matrix.ts";
import type { CudaLayerWeights, CudaModelWeights } from "./pass.ts";

const [F32, F16] = [0, 1];
/** kMostGatedPairs. */
const MOST_GATED_PAIRS = 4096;
/** kMostFinishedPairs. */
const MOST_FINISHED_PAIRS = 32;

/** Whether a block has room for what waits until its tasks are done, where a layer's block output is made. */
function finishesInTime(
  shape: ChainShape,
  { outB, downExps, downShared }: CudaLayerWeights,
  used: number,
): boolean {
  const { experts, shared } = cutDown(shape, downExps.matrix, downShared.matrix, used);
  const ofDown = experts.perBlock + Math.ceil(shared.tasks / blocksOf(shape));
  const ofOutput = cutWorks([pairWork(outB.matrix)], blocksOf(shape)).perBlock;
  return Math.max(ofDown, ofOutput) <= MOST_FINISHED_PAIRS;
}

/**
 * True for models whose weights these kernels can all read, where `workInput` has room for a token's int8 rows, and blocks for stages
 * of everything that a step reads.
 */
export function canStream(model: CudaModelWeights, workInput: DeviceBuffer, chain: ChainShape): boolean {
  const { spec, layers, head, outputHc } = model;
  const isFn = ({ type }: DeviceMatrix) => type === F32 || type === F16;
  const { outputGroupCount: groups, outputLoraRank: rank, expertHiddenSize: inner } = spec;
  const gatedPairs = ((spec.expertUsedCount + spec.expertSharedCount) * inner) / 32;
  const widths = [spec.hiddenSize, spec.queryLoraRank, groups * rank, inner];
  const shapes =
    spec.hyperCount === 4 &&
    widths.every((width) => width % 128 === 0) &&
    rank % 32 === 0 &&
    inner >= 256 &&
    spec.headDim <= 1024 &&
    spec.indexerHeadDim <= 1024 &&
    spec.expertCount <= MOST_EXPERTS &&
    spec.expertUsedCount <= MOST_USED_EXPERTS &&
    gatedPairs <= MOST_GATED_PAIRS &&
    // Blocks of their own for the router, the shared expert and the join's balance.
    blocksOf(chain) >= 3 &&
    spec.hiddenSize <= STREAM_THREADS * chain.multiprocessors &&
    quantizedRowBytes(spec) <= workInput.bytes;
  if (!shapes || !canRead(head.matrix) || !isFn(outputHc.fn)) return false;
  const fits = (matrices: DeviceMatrix[], rows = 1) => {
    const rowBytes = Math.max(...matrices.map((matrix) => stagedBytes(matrix, rows)));
    return streamRoom(chain, matrices, rowBytes).stages > 0;
  };
  if (!fits([head.matrix])) return false;
  return layers.every((layer) => {
    const { compressor, indexer } = layer;
    const dense = [layer.qA, layer.qB, layer.kv, layer.outA, layer.outB, layer.router];
    if (compressor) dense.push(compressor.kv, compressor.gate);
    if (indexer) dense.push(indexer.proj, indexer.qB, indexer.compressor.kv, indexer.compressor.gate);
    const gated = [layer.gateShared, layer.upShared, layer.downShared];
    gated.push(layer.gateExps, layer.upExps, layer.downExps);
    const wide = ({ cols }: DeviceMatrix) => cols % 128 === 0;
    return (
      dense.every(({ matrix }) => wide(matrix)) &&
      isFn(layer.hcAttn.fn) &&
      isFn(layer.hcFfn.fn) &&
      dense.every(({ matrix }) => canRead(matrix)) &&
      gated.every(({ matrix }) => isInt8(matrix)) &&
      layer.gateShared.matrix.type === layer.upShared.matrix.type &&
      layer.gateExps.matrix.type === layer.upExps.matrix.type &&
      finishesInTime(chain, layer, spec.expertUsedCount) &&
      fits(dense.map(({ matrix }) => matrix)) &&
      fits([layer.router.matrix, layer.gateShared.matrix]) &&
      fits([layer.gateExps.matrix]) &&
      fits([layer.downExps.matrix, layer.downShared.matrix], spec.expertUsedCount)
    );
  });
}
