// The tensors of a GGUF file as sources, whatever type they are stored in.
import { type GgmlType, rowBytes } from "../blocks/ggml-types.ts";
import { blockFormat } from "../blocks/registry.ts";
import type { GgufFile, TensorInfo } from "../gguf/gguf-file.ts";
import type { TensorSource } from "./tensor-source.ts";

/** A source over one tensor of an open file. */
export function ggufTensorSource(file: GgufFile, tensor: TensorInfo): TensorSource {
  const { name, type, dims } = tensor;
  const bytesPerRow = rowBytes(type, dims[0]);
  const readExact = (_: GgmlType, firstRow: number, rows: number) =>
    file.readTensor(tensor, firstRow * bytesPerRow, rows * bytesPerRow);
  return {
    name,
    dims,
    exactTypes: [type],
    readExact,
    readRows(firstRow, rows) {
      const values = new Float32Array(rows * dims[0]);
      blockFormat(type).decode(readExact(type, firstRow, rows), 0, values, 0, values.length);
      return values;
    },
  };
}
