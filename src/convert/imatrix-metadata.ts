// What a file says about the importance matrix it was made with.
import type { MetadataValue } from "../gguf/gguf-file.ts";
import type { Imatrix } from "./imatrix-file.ts";

/** Prefix of these keys. */
export const IMATRIX_PREFIX = "quantize.imatrix.";

/** The keys, as llama.cpp names them. */
export function imatrixMetadata(imatrix: Imatrix): Map<string, MetadataValue> {
  const fileName = imatrix.path.replace(/^.*[\\/]/, ""); // no folder names of this machine
  const entries: [key: string, value: MetadataValue][] = [
    ["file", { type: "string", value: fileName }],
    ["entries_count", { type: "i32", value: imatrix.names.length }],
  ];
  if (imatrix.datasets.length > 0) {
    entries.push(["dataset", { type: "string", value: imatrix.datasets.join(", ") }]);
  }
  if (imatrix.chunkCount !== undefined) {
    entries.push(["chunks_count", { type: "i32", value: imatrix.chunkCount }]);
  }
  return new Map(entries.map(([key, value]) => [IMATRIX_PREFIX + key, value]));
}
