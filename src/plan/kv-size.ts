// The arrays of one sequence's attention state: the only place that knows how large they are. The backend allocates
// exactly these, the plan counts exactly these.
import type { LayerSpec, ModelSpec } from "../model/model-spec.ts";
import { compressorWidth } from "../model/weights.ts";

/** Sizes of one unfinished window, in values. */
export interface PendingSizes {
  kvValues: number; // [ratio, projected]
  gateValues: number; // [ratio, projected]
  previousKvValues: number; // [ratio, width] where windows overlap, else 0
  previousGateValues: number;
}

/** Sizes of one compressor's state. */
export interface CompressorSizes {
  ratio: number;
  /** Width of an entry, and columns of a raw projection (twice that where windows overlap). */
  width: number;
  projected: number;
  entryValues: number; // [floor(capacity / ratio), width]
  /** Of each of the two slots. */
  slot: PendingSizes;
}

/** Sizes of one layer's state. */
export interface LayerKvSizes {
  ringValues: number; // [ringRows, headDim]
  compressor?: CompressorSizes;
  indexer?: CompressorSizes;
}

/** Unfinished windows are kept twice: a pass that fails leaves the valid one untouched. */
export const PENDING_SLOTS = 2;

/** Rows of the sliding ring: a window and a whole batch, or all positions where those are fewer. */
export function kvRingRows(spec: ModelSpec, capacityTokens: number, batchTokens: number): number {
  return Math.min(capacityTokens, spec.slidingWindow + batchTokens);
}

/** Sizes of one layer for `capacityTokens` tokens and forward calls of up to `batchTokens`. */
export function layerKvSizes(
  spec: ModelSpec,
  layer: LayerSpec,
  capacityTokens: number,
  batchTokens: number,
): LayerKvSizes {
  const { compressRatio: ratio } = layer;
  return {
    ringValues: kvRingRows(spec, capacityTokens, batchTokens) * spec.headDim,
    compressor: ratio === 0 ? undefined : compressorSizes(spec.headDim, ratio, capacityTokens),
    indexer: layer.hasIndexer ? compressorSizes(spec.indexerHeadDim, ratio, capacityTokens) : undefined,
  };
}

/** Values of both slots of a compressor. */
export function pendingValues({ slot }: CompressorSizes): number {
  return PENDING_SLOTS * (slot.kvValues + slot.gateValues + slot.previousKvValues + slot.previousGateValues);
}

function compressorSizes(width: number, ratio: number, capacityTokens: number): CompressorSizes {
  const projected = compressorWidth(width, ratio);
  const previousValues = projected > width ? ratio * width : 0;
  return {
    ratio,
    width,
    projected,
    entryValues: Math.floor(capacityTokens / ratio) * width,
    slot: {
      kvValues: ratio * projected,
      gateValues: ratio * projected,
      previousKvValues: previousValues,
      previousGateValues: previousValues,
    },
  };
}
