// What conversion reads from: a tensor's rows, as floats or, where the wanted type is what is stored, as bytes.
import type { GgmlType } from "../blocks/ggml-types.ts";
import { blockFormat } from "../blocks/registry.ts";

/** A tensor that can be read in slices of rows. Rows of an expert stack are numbered through all experts. */
export interface TensorSource {
  /** Name in the file to be written. */
  readonly name: string;
  /** Fastest first. */
  readonly dims: readonly number[];
  /** Types whose bytes `readExact` gives without decoding. */
  readonly exactTypes: readonly GgmlType[];
  /** `rows` rows from `firstRow` in the blocks of one of `exactTypes`. Fresh memory. Throws `io` or `convert`. */
  readExact(type: GgmlType, firstRow: number, rows: number): Uint8Array;
  /** `rows` rows from `firstRow` as floats, row-major. Fresh memory. Throws `io` or `convert`. */
  readRows(firstRow: number, rows: number): Float32Array;
}

/** Reading of rows that are stored as blocks of `type`: `readBytes` gives `length` bytes from `start` within the tensor. */
export function storedRows(
  type: GgmlType,
  columns: number,
  bytesPerRow: number,
  readBytes: (start: number, length: number) => Uint8Array,
): Pick<TensorSource, "exactTypes" | "readExact" | "readRows"> {
  const readExact = (_: GgmlType, firstRow: number, rows: number) =>
    readBytes(firstRow * bytesPerRow, rows * bytesPerRow);
  return {
    exactTypes: [type],
    readExact,
    readRows(firstRow, rows) {
      const values = new Float32Array(rows * columns);
      blockFormat(type).decode(readExact(type, firstRow, rows), 0, values, 0, values.length);
      return values;
    },
  };
}
