// Tells model files apart without reading their weights.
import { createHash, type Hash } from "node:crypto";
import type { GgufFile, MetadataArray, MetadataArrayValues } from "./gguf-file.ts";

/**
 * SHA-256, in hexadecimal, of the header's metadata, the tensor table and the file's size. Files that differ in weights
 * alone and in nothing of these would look the same; no converter makes such.
 */
export function modelFingerprint(file: GgufFile): string {
  const hash = createHash("sha256");
  for (const [key, value] of file.metadata) {
    if (value.type === "array") {
      text(hash, `${key} array`);
      hashArray(hash, value);
    } else text(hash, `${key} ${value.type} ${value.value}`);
  }
  for (const { name, type, dims, bytes, fileIndex, offsetBytes } of file.tensors) {
    text(hash, JSON.stringify([name, type, dims, bytes, fileIndex, offsetBytes]));
  }
  text(hash, `${file.sizeBytes}`);
  return hash.digest("hex");
}

function hashArray(hash: Hash, { elementType, values }: MetadataArray): void {
  text(hash, `${elementType} ${values.length}`);
  if (ArrayBuffer.isView(values)) {
    hash.update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    return;
  }
  for (const value of values as Exclude<MetadataArrayValues, ArrayBufferView>) {
    if (typeof value === "object") hashArray(hash, value as MetadataArray);
    else text(hash, `${value}`);
  }
}

// With its length, so that no two lists of texts look the same.
function text(hash: Hash, value: string): void {
  hash.update(`${value.length}:${value}`);
}
