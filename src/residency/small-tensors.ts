// The tensors that are not matrices: norms, biases and tables, read whole.
import { blockFormat } from "../blocks/registry.ts";
import { type GgufFile, type TensorInfo, valueCount } from "../gguf/gguf-file.ts";
import { checkRoutingTable } from "../model/routing-table.ts";
import type { BoundModel } from "../model/weights.ts";

/** A vector decoded to float32. */
export function readVector(file: GgufFile, tensor: TensorInfo): Float32Array {
  const values = new Float32Array(valueCount(tensor));
  blockFormat(tensor.type).decode(file.readTensor(tensor), 0, values, 0, values.length);
  return values;
}

/** A routing table [vocab, used], every entry an expert that exists. Throws `unsupported-model`. */
export function readIndexes(file: GgufFile, tensor: TensorInfo, model: BoundModel): Int32Array {
  const bytes = file.readTensor(tensor);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values = Int32Array.from({ length: valueCount(tensor) }, (_, i) => view.getInt32(4 * i, true));
  checkRoutingTable(file.name, tensor, values, model.spec.expertCount);
  return values;
}
