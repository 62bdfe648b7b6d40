// Reads whole arrays out of the fixtures' safetensors files: F32 and I32 only, trusted input.
import { readFileSync } from "node:fs";

/** Tensor name to its values, row-major. */
export type ArrayReader = (name: string) => Float32Array | Int32Array;

interface HeaderEntry {
  dtype: string;
  data_offsets: [number, number];
}

/** Loads the file and returns a reader of its tensors; asking for an unknown one throws. */
export function readSafetensorsArrays(path: string): ArrayReader {
  const bytes = readFileSync(path);
  const headerBytes = Number(bytes.readBigUInt64LE(0));
  const header: Record<string, HeaderEntry> = JSON.parse(bytes.toString("utf8", 8, 8 + headerBytes));
  return (name) => {
    const entry = header[name];
    if (entry === undefined) throw new Error(`${path} has no tensor "${name}"`);
    const [start, end] = entry.data_offsets.map((offset) => 8 + headerBytes + offset);
    const { buffer } = new Uint8Array(bytes.subarray(start, end));
    return entry.dtype === "I32" ? new Int32Array(buffer) : new Float32Array(buffer);
  };
}
