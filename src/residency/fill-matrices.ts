// Fills the matrices of a plan. Files are read and packed by native threads; anything else piece by piece.
import type { NativeKernels, SpanReaderOptions, WeightMatrix, Workspace } from "../backend/native-kernels.ts";
import { CancelledError } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { longestReadBytes } from "../plan/staging-size.ts";
import type { WeightPlan } from "../plan/weight-layout.ts";
import { planReads, type Read } from "./read-order.ts";
import { nextSpan, openSpanReader, type ReadFaults } from "./span-reads.ts";

/** What watches and disturbs the filling. */
export interface FillOptions {
  onProgress?: ProgressListener;
  /** Checked between reads. */
  signal?: { readonly aborted: boolean };
  /** For tests. */
  faults?: ReadFaults;
}

/** Where a piece is packed: rows of one slice of a matrix. */
export interface PackTarget {
  matrix: WeightMatrix;
  slice: number;
  rowBegin: number;
}

/** What is filled, and from where. */
export interface FillJob {
  kernels: NativeKernels;
  /** Packs what does not come from files. */
  workspace: Workspace;
  file: GgufFile;
  plan: WeightPlan;
  /**
   * A target for each piece of read number `index`. Targets of read i may be those of read i + STAGING_BUFFERS too,
   * which is packed after `onPacked` of read i; or of i + STAGING_BUFFERS + 1, after that of read i + 1; and so on.
   */
  targetsOf(read: Read, index: number): readonly PackTarget[];
  /** Called when a read is packed, in order. */
  onPacked?(read: Read, index: number): void;
}

/**
 * Fills every matrix. Throws `io`, `cancelled`, and `memory` when there is no memory or thread to read with; nothing
 * is being written any more when it throws.
 */
export function fillMatrices(job: FillJob, options: FillOptions): void {
  const report = progressOf(job.plan, options);
  const reads = planReads(job.plan, longestReadBytes(job.plan));
  const { descriptors } = job.file;
  const finish = (read: Read, index: number) => {
    job.onPacked?.(read, index);
    report(read);
  };
  if (descriptors === undefined) fillFromSource(job, reads, finish);
  else fillFromFiles(job, reads, descriptors, finish, options.faults);
}

/** Called after a read is packed and used; throws `cancelled`. */
type Finish = (read: Read, index: number) => void;

function progressOf(plan: WeightPlan, { onProgress, signal }: FillOptions): (read: Read) => void {
  const total = plan.matrices.reduce((sum, { tensor }) => sum + tensor.bytes, 0);
  let done = 0;
  const check = () => {
    if (signal?.aborted) throw new CancelledError("loading was cancelled");
  };
  check();
  return ({ pieces }) => {
    done += pieces.reduce((sum, { bytes }) => sum + bytes, 0);
    const detail = pieces[pieces.length - 1].placed.tensor.name;
    onProgress?.({ label: "load", done, total, unit: "bytes", detail });
    if (done < total) check();
  };
}

function fillFromSource(job: FillJob, reads: readonly Read[], finish: Finish): void {
  const { workspace, file, plan } = job;
  const buffer = new Uint8Array(longestReadBytes(plan));
  for (const [index, read] of reads.entries()) {
    const targets = job.targetsOf(read, index);
    for (const [i, { placed, startBytes, bytes, rowCount }] of read.pieces.entries()) {
      const source = buffer.subarray(0, bytes);
      file.readTensorInto(placed.tensor, source, startBytes);
      const { matrix, slice, rowBegin } = targets[i];
      matrix.packRows(workspace, slice, rowBegin, rowCount, source);
    }
    finish(read, index);
  }
}

function fillFromFiles(
  job: FillJob,
  reads: readonly Read[],
  descriptors: readonly number[],
  finish: Finish,
  faults: ReadFaults = {},
): void {
  const { file, plan } = job;
  const options = { ...packingOf(job, reads), ...faults };
  const reader = openSpanReader(job.kernels, file, descriptors, reads, longestReadBytes(plan), options);
  try {
    for (const [index, read] of reads.entries()) {
      nextSpan(file, reader);
      finish(read, index);
    }
  } finally {
    reader.close();
  }
}

/** The pieces and their targets as `SpanReader` takes them. */
function packingOf(
  job: FillJob,
  reads: readonly Read[],
): Required<Pick<SpanReaderOptions, "matrices" | "pieces">> {
  const numberOf = new Map<WeightMatrix, number>();
  const numbers = reads.flatMap((read, span) => {
    const targets = job.targetsOf(read, span);
    return read.pieces.flatMap(({ placed, startBytes, rowCount }, i) => {
      const { matrix, slice, rowBegin } = targets[i];
      const number = numberOf.get(matrix) ?? numberOf.size;
      numberOf.set(matrix, number);
      const start = placed.tensor.offsetBytes + startBytes - read.offsetBytes;
      return [span, start, number, slice, rowBegin, rowCount];
    });
  });
  return { matrices: [...numberOf.keys()], pieces: Float64Array.from(numbers) };
}
