// The tensors that are not matrices: norms, biases and tables, read whole.
import { blockFormat } from "../blocks/registry.ts";
import { UnsupportedModelError } from "../core/errors.ts";
import type { GgufFile, TensorInfo } from "../gguf/gguf-file.ts";
import type { BoundModel } from "../model/weights.ts";
import { valueCount } from "../plan/weight-layout.ts";

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
  const { expertCount } = model.spec;
  const wrong = values.findIndex((expert) => expert < 0 || expert >= expertCount);
  if (wrong < 0) return values;
  throw new UnsupportedModelError(
    `${file.name}: tensor "${tensor.name}": token ${Math.floor(wrong / tensor.dims[0])} routes to expert ` +
      `${values[wrong]}, expected 0..${expertCount - 1}`,
  );
}
