// Planned reads of files, carried out ahead by native threads.
import type { NativeKernels, SpanReader, SpanReaderOptions } from "../backend/native-kernels.ts";
import { Ds4Error, MemoryError } from "../core/errors.ts";
import { MIB } from "../core/units.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { STAGING_BUFFERS } from "../plan/staging-size.ts";
import type { Read } from "./read-order.ts";

/** Files below this stay in the page cache, where the next start finds them. Larger ones would push out all else. */
const CACHED_FILE_BYTES = 64 * MIB;

/** Faults for tests, see native/residency/span_reader.h. */
export type ReadFaults = Pick<SpanReaderOptions, "failAtByte" | "maxReadBytes">;

/** Begins to read ahead. Throws `memory` when there is no memory or thread for it. */
export function openSpanReader(
  kernels: NativeKernels,
  file: GgufFile,
  descriptors: readonly number[],
  reads: readonly Read[],
  longestBytes: number,
  options: Partial<SpanReaderOptions> = {},
): SpanReader {
  const spans = Float64Array.from(reads.flatMap((read) => [read.fileIndex, read.offsetBytes, read.bytes]));
  try {
    return new kernels.SpanReader(descriptors, spans, {
      bufferBytes: longestBytes,
      buffers: STAGING_BUFFERS,
      threads: STAGING_BUFFERS,
      bypassCache: file.sizeBytes >= CACHED_FILE_BYTES,
      ...options,
    });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const bytes = STAGING_BUFFERS * longestBytes;
    throw new MemoryError(`${file.name}: cannot begin to read the weights: ${reason}`, bytes, Number.NaN);
  }
}

/** The next span of `reader`, null after the last. Throws `io`, naming the part and what was found. */
export function nextSpan(file: GgufFile, reader: SpanReader): Uint8Array | null {
  try {
    return reader.next();
  } catch (error) {
    throw isReadFailure(error) ? readError(file, error) : error;
  }
}

/** What SpanReader.next adds to its errors. */
interface ReadFailure extends Error {
  file: number;
  offsetBytes: number;
  expectedBytes: number;
  foundBytes: number;
  /** Empty: the file ended. */
  reason: string;
}

function isReadFailure(error: unknown): error is ReadFailure {
  return error instanceof Error && "expectedBytes" in error;
}

function readError(file: GgufFile, failure: ReadFailure): Ds4Error {
  const { offsetBytes, expectedBytes, foundBytes, reason } = failure;
  const path = file.parts[failure.file];
  const amount = `expected ${expectedBytes} bytes at offset ${offsetBytes}, found ${foundBytes}`;
  const message =
    reason === ""
      ? `${path} ended early: ${amount}; was it truncated after opening?`
      : `cannot read ${path}: ${amount}: ${reason}; check the disk and the kernel log`;
  return new Ds4Error("io", message, { cause: failure });
}
