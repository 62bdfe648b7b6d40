// How many bytes of weights one token reads in decode: the physical lower bound of its time is these bytes over the
// memory's bandwidth.
import { rowBytes } from "../blocks/ggml-types.ts";
import type { TensorInfo } from "../gguf/gguf-file.ts";
import type { BoundModel } from "../model/weights.ts";
import { planWeights } from "./weight-layout.ts";

/** All matrices once, of routed experts only the used ones, of the embedding one row. */
export function weightBytesPerToken(model: BoundModel): number {
  const { expertCount, expertUsedCount } = model.spec;
  const { embedding } = model;
  return planWeights(model).matrices.reduce((sum, { tensor, slices }) => {
    if (tensor === embedding) return sum + embeddingRowBytes(tensor);
    return sum + (slices > 1 ? (tensor.bytes / expertCount) * expertUsedCount : tensor.bytes);
  }, 0);
}

function embeddingRowBytes(tensor: TensorInfo): number {
  return rowBytes(tensor.type, tensor.dims[0]);
}
