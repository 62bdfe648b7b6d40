// Decodes a bound model's tensors to float32, whole and up front. The reference runs small models; a real one in
// float32 would be a terabyte, so the size is checked before anything is read.
import { blockFormat } from "../../blocks/registry.ts";
import { MemoryError } from "../../core/errors.ts";
import { formatBytes, GIB } from "../../core/units.ts";
import { type GgufFile, type TensorInfo, valueCount } from "../../gguf/gguf-file.ts";
import type { LayerSpec, ModelSpec } from "../../model/model-spec.ts";
import { checkRoutingTable } from "../../model/routing-table.ts";
import type { BoundModel } from "../../model/weights.ts";

/** Decoded weights above this are refused: the reference is for fixtures and comparison, not for real models. */
export const MAX_DECODED_BYTES = 8 * GIB;

/** A tensor in float32, row-major; `columns` is the row length. */
export interface Weight {
  name: string;
  columns: number;
  data: Float32Array;
}

/** The same structure with every tensor decoded. */
export type Decoded<T> = T extends TensorInfo
  ? Weight
  : T extends LayerSpec | ModelSpec | readonly string[]
    ? T
    : T extends readonly (infer Item)[]
      ? Decoded<Item>[]
      : T extends object
        ? { [Key in keyof T]: Decoded<T[Key]> }
        : T;

/**
 * Reads and decodes all tensors of `model`. Throws `memory` with the numbers above `MAX_DECODED_BYTES`, and
 * `unsupported-model` when a hash-routing table names an expert that does not exist.
 */
export function decodeModel(file: GgufFile, model: BoundModel): Decoded<BoundModel> {
  const bytes = decodedBytes(model);
  if (bytes > MAX_DECODED_BYTES) {
    throw new MemoryError(
      `${file.name}: ${formatBytes(bytes)} as float32, more than the reference backend's limit of ` +
        `${formatBytes(MAX_DECODED_BYTES)}; run it on the cpu backend`,
      bytes,
      MAX_DECODED_BYTES,
    );
  }
  const decoded = decodeTree(file, model) as Decoded<BoundModel>;
  model.layers.forEach(({ tid2eid }, index) => {
    const table = decoded.layers[index].tid2eid;
    if (tid2eid && table) checkRoutingTable(file.name, tid2eid, table.data, model.spec.expertCount);
  });
  return decoded;
}

/** Bytes that `decodeModel` allocates. */
export function decodedBytes(model: BoundModel): number {
  let bytes = 0;
  visit(model, (tensor) => {
    bytes += valueCount(tensor) * Float32Array.BYTES_PER_ELEMENT;
  });
  return bytes;
}

function decodeTree(file: GgufFile, node: unknown): unknown {
  if (isTensor(node)) return decodeTensor(file, node);
  if (Array.isArray(node)) return node.map((item) => decodeTree(file, item));
  if (typeof node !== "object" || node === null) return node;
  const entries = Object.entries(node);
  return Object.fromEntries(
    entries.map(([key, value]) => [key, key === "spec" ? value : decodeTree(file, value)]),
  );
}

function visit(node: unknown, found: (tensor: TensorInfo) => void): void {
  if (isTensor(node)) found(node);
  else if (typeof node === "object" && node !== null)
    for (const value of Object.values(node)) visit(value, found);
}

function isTensor(node: unknown): node is TensorInfo {
  return typeof node === "object" && node !== null && "dims" in node && "offsetBytes" in node;
}

function decodeTensor(file: GgufFile, tensor: TensorInfo): Weight {
  const count = valueCount(tensor);
  const data = new Float32Array(count);
  const bytes = file.readTensor(tensor);
  if (tensor.type === "I32") {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let i = 0; i < count; i++) data[i] = view.getInt32(4 * i, true); // expert ids: exact in float32
  } else {
    blockFormat(tensor.type).decode(bytes, 0, data, 0, count);
  }
  return { name: tensor.name, columns: tensor.dims[0], data };
}
