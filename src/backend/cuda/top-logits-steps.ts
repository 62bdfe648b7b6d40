// Candidates of rows of logits on the device: the launches, and what comes back, byte for byte as in
// native/cuda/top-logits.cu.
import { TOP_LOGITS } from "../backend.ts";
import type { CudaContext } from "./context.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import { blocks } from "./kernel-args.ts";

/** Logits of a block. */
const CHUNK = 4096;
const THREADS = 1024;
/** Where the parts of struct TopLogits begin. */
export const TOP_LOGITS_PARTS = { sum: 0, max: 8, count: 12, ids: 16, logits: 16 + 4 * TOP_LOGITS } as const;

/** Bytes of struct TopLogits. */
export const TOP_LOGITS_BYTES = TOP_LOGITS_PARTS.logits + 4 * TOP_LOGITS;

/** What lies before the structs that come back: the error flag, and padding. */
export const RESULT_HEADER_BYTES = 16;

/** Bytes that come back with the candidates of `rows` rows. */
export function resultBytes(rows: number): number {
  return RESULT_HEADER_BYTES + rows * TOP_LOGITS_BYTES;
}

/** Candidates of one row as they come back. */
export interface DeviceTop {
  ids: Int32Array;
  logits: Float32Array;
  logSumExp: number;
}

/** Scratch of `topLogits`. */
export interface TopLogitsWork {
  /** int32 [rows, chunks, TOP_LOGITS] */
  candidates: DeviceBuffer;
  /** float32 [rows, chunks, 2] */
  sums: DeviceBuffer;
}

/** Bytes of `TopLogitsWork`. */
export function topLogitsWorkBytes(rows: number, vocab: number): Record<keyof TopLogitsWork, number> {
  const chunks = rows * blocks(vocab, CHUNK);
  return { candidates: 4 * TOP_LOGITS * chunks, sums: 8 * chunks };
}

/** logits [rows, vocab] to structs TopLogits [rows] in `out`. Exact, also of NaN, infinities and ties. */
export function topLogits(
  { module, stream }: CudaContext,
  rows: number,
  vocab: number,
  logits: DeviceBuffer,
  { candidates, sums }: TopLogitsWork,
  out: DeviceBuffer,
): void {
  const chunks = blocks(vocab, CHUNK);
  const source = [{ p: logits }, { i32: vocab }];
  const chunkArgs = [...source, { p: candidates }, { p: sums }];
  module.launch(stream, "top_logits_chunks", [chunks, rows, 1], [THREADS, 1, 1], 0, chunkArgs, true);
  const args = [...source, { i32: chunks }, { p: candidates }, { p: sums }, { p: out }];
  module.launch(stream, "top_logits_merged", [rows, 1, 1], [THREADS, 1, 1], 0, args, true);
}

/** Copies struct TopLogits number `index` out of `structs`. */
export function takeTopLogits(structs: Uint8Array, index: number): DeviceTop {
  const { buffer } = structs.slice(index * TOP_LOGITS_BYTES, (index + 1) * TOP_LOGITS_BYTES);
  const parts = TOP_LOGITS_PARTS;
  const view = new DataView(buffer);
  const count = view.getInt32(parts.count, true);
  return {
    ids: new Int32Array(buffer, parts.ids, count),
    logits: new Float32Array(buffer, parts.logits, count),
    logSumExp: view.getFloat32(parts.max, true) + Math.log(view.getFloat64(parts.sum, true)),
  };
}
