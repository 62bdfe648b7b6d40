// The table of layers that route by token id, checked before a kernel follows it.
import { UnsupportedModelError } from "../core/errors.ts";
import type { TensorInfo } from "../gguf/gguf-file.ts";

/** Throws `unsupported-model` unless every entry of `values` [vocab, used] is an expert that exists. */
export function checkRoutingTable(
  fileName: string,
  tensor: Pick<TensorInfo, "name" | "dims">,
  values: Int32Array | Float32Array,
  expertCount: number,
): void {
  const wrong = values.findIndex((expert: number) => !(expert >= 0 && expert < expertCount));
  if (wrong < 0) return;
  throw new UnsupportedModelError(
    `${fileName}: tensor "${tensor.name}": token ${Math.floor(wrong / tensor.dims[0])} routes to expert ` +
      `${values[wrong]}, expected 0..${expertCount - 1}`,
  );
}
