// Fills the matrices of a plan. Files are read and packed by native threads; anything else piece by piece.
import type { NativeKernels, WeightMatrix, Workspace } from "../backend/native-kernels.ts";
import { CancelledError } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { longestReadBytes } from "../plan/staging-size.ts";
import type { PlacedMatrix, WeightPlan } from "../plan/weight-layout.ts";
import { type Piece, planReads, type Read } from "./read-order.ts";
import { nextSpan, openSpanReader, openWeightBytes, type ReadFaults } from "./weight-bytes.ts";

/** What watches and disturbs the filling. */
export interface FillOptions {
  onProgress?: ProgressListener;
  /** Checked between reads. */
  signal?: { readonly aborted: boolean };
  /** For tests. */
  faults?: ReadFaults;
}

/** What is filled, and from where. */
export interface FillJob {
  kernels: NativeKernels;
  workspace: Workspace;
  file: GgufFile;
  plan: WeightPlan;
  /** One for each entry of `plan.matrices`. */
  matrices: readonly WeightMatrix[];
}

/**
 * Fills every matrix. Throws `io`, `cancelled`, and `memory` when there is no memory or thread to read with; nothing
 * is being written any more when it throws.
 */
export function fillMatrices(job: FillJob, options: FillOptions): void {
  const report = progressOf(job.plan, options);
  const reads = planReads(job.plan, longestReadBytes(job.plan));
  const { descriptors } = job.file;
  if (descriptors === undefined) fillFromSource(job, reads, report);
  else fillFromFiles(job, reads, descriptors, report, options.faults);
}

/** Called after a read is packed; throws `cancelled`. */
type Report = (read: Read) => void;

function progressOf(plan: WeightPlan, { onProgress, signal }: FillOptions): Report {
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

function fillFromSource(job: FillJob, reads: readonly Read[], report: Report): void {
  const { kernels, workspace, file, plan, matrices } = job;
  const source = openWeightBytes(kernels, file, reads, longestReadBytes(plan));
  const matrixOf = new Map(plan.matrices.map((placed, index) => [placed, matrices[index]]));
  for (const read of reads) {
    for (const piece of read.pieces) {
      const { placed, slice, rowBegin, rowCount } = piece;
      const bytes = source.pieceBytes(read, piece);
      matrixOf.get(placed)!.packRows(workspace, slice, rowBegin, rowCount, bytes);
    }
    report(read);
  }
  source.close();
}

function fillFromFiles(
  job: FillJob,
  reads: readonly Read[],
  descriptors: readonly number[],
  report: Report,
  faults: ReadFaults = {},
): void {
  const { file, plan, matrices } = job;
  const pieces = pieceNumbers(plan.matrices, reads);
  const options = { matrices, pieces, ...faults };
  const reader = openSpanReader(job.kernels, file, descriptors, reads, longestReadBytes(plan), options);
  try {
    for (const read of reads) {
      nextSpan(file, reader);
      report(read);
    }
  } finally {
    reader.close();
  }
}

/** The pieces as `SpanReader` takes them. */
function pieceNumbers(placed: readonly PlacedMatrix[], reads: readonly Read[]): Float64Array {
  const indexOf = new Map(placed.map((entry, index) => [entry, index]));
  const numbers = (read: Read, span: number, piece: Piece) => {
    const start = piece.placed.tensor.offsetBytes + piece.startBytes - read.offsetBytes;
    return [span, start, indexOf.get(piece.placed)!, piece.slice, piece.rowBegin, piece.rowCount];
  };
  return Float64Array.from(
    reads.flatMap((read, span) => read.pieces.flatMap((piece) => numbers(read, span, piece))),
  );
}
