// The buffers that weights pass through on their way from the file into the arena.
import { rowBytes } from "../blocks/ggml-types.ts";
import { alignUp, KIB, MIB } from "../core/units.ts";
import { MATRIX_ALIGNMENT_BYTES, PANEL_ROWS, type WeightPlan } from "./weight-layout.ts";

/** Bytes of one read, unless a single panel is larger: far above what a disk needs to be at full speed. */
const READ_BYTES = 4 * MIB;
/** Buffers, each with a thread that reads into it and repacks from it: the disk is busy while others compute. */
export const STAGING_BUFFERS = 8;
/** Reads begin and end on pages (at most 64 KiB large), spans do not (native/residency/span_reader.cpp). */
const PAGE_SLACK_BYTES = 64 * KIB;

/** Bytes of the longest read: at least one panel of the widest matrix. */
export function longestReadBytes(plan: WeightPlan): number {
  return plan.matrices.reduce(
    (most, { tensor, cols }) => Math.max(most, PANEL_ROWS * rowBytes(tensor.type, cols)),
    READ_BYTES,
  );
}

/** Bytes of all staging buffers together, held while loading. */
export function stagingBytes(plan: WeightPlan): number {
  return STAGING_BUFFERS * (alignUp(longestReadBytes(plan), PAGE_SLACK_BYTES) + PAGE_SLACK_BYTES);
}

/** Bytes in which one packed read waits for its copy to a device (src/residency/read-order.ts keeps to it). */
export function uploadSlotBytes(plan: WeightPlan): number {
  return alignUp(longestReadBytes(plan), MATRIX_ALIGNMENT_BYTES);
}

/** One for each buffer, and one whose copy may end while the next read is waited for. */
export const UPLOAD_SLOTS = STAGING_BUFFERS + 1;

/** Bytes of the slots together, held while loading. */
export function uploadBytes(plan: WeightPlan): number {
  return UPLOAD_SLOTS * uploadSlotBytes(plan);
}
