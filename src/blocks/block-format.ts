// The contract of a block format: how values become bytes and back. One file per type implements it in
// readable TypeScript; the native kernels are tested against these.
import type { GgmlType } from "./ggml-types.ts";

/** Decodes, and where supported encodes, rows of one tensor type. Stateless. */
export interface BlockFormat {
  readonly type: GgmlType;
  /**
   * Decodes `valueCount` values (a multiple of the block length) from `source` at `sourceOffset` bytes into
   * `target` at `targetOffset` values. Neither array is kept.
   */
  decode(
    source: Uint8Array,
    sourceOffset: number,
    target: Float32Array,
    targetOffset: number,
    valueCount: number,
  ): void;
  /**
   * Encodes `valueCount` values. `importance`, when given, holds one non-negative weight per value of the
   * row (mean squared activation of that input column), starting at index 0 for the first value. Undefined
   * for types that are only read.
   */
  encode?(
    source: Float32Array,
    sourceOffset: number,
    target: Uint8Array,
    targetOffset: number,
    valueCount: number,
    importance?: Float32Array,
  ): void;
}
