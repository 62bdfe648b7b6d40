// The tensors of a GGUF file as sources, whatever type they are stored in.
import { rowBytes } from "../blocks/ggml-types.ts";
import type { GgufFile, TensorInfo } from "../gguf/gguf-file.ts";
import { storedRows, type TensorSource } from "./tensor-source.ts";

/** A source over one tensor of an open file. */
export function ggufTensorSource(file: GgufFile, tensor: TensorInfo): TensorSource {
  const { name, type, dims } = tensor;
  return {
    name,
    dims,
    ...storedRows(type, dims[0], rowBytes(type, dims[0]), (start, length) =>
      file.readTensor(tensor, start, length),
    ),
  };
}
