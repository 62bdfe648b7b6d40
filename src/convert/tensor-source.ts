// What conversion reads from: a tensor's rows, as floats or, where the wanted type is what is stored, as bytes.
import type { GgmlType } from "../blocks/ggml-types.ts";

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
