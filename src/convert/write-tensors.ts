// The common end of convert and quantize: streams tensors slice by slice through the encoder into a GGUF file, which
// appears whole or not at all. Memory stays at a few slices whatever the model's size.
import { existsSync, statfsSync } from "node:fs";
import { dirname } from "node:path";
import { setImmediate } from "node:timers/promises";
import type { GgmlType } from "../blocks/ggml-types.ts";
import { blockFormat } from "../blocks/registry.ts";
import { CancelledError, Ds4Error } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import { quotedText } from "../core/quoted-text.ts";
import { formatBytes } from "../core/units.ts";
import type { MetadataValue } from "../gguf/gguf-file.ts";
import { GgufWriter } from "../gguf/gguf-writer.ts";
import type { TensorDeclaration } from "../gguf/header-encoder.ts";
import type { Imatrix } from "./imatrix-file.ts";
import type { RowEncoder } from "./row-encoder.ts";
import type { TensorSource } from "./tensor-source.ts";

/** Values read, encoded and written at once (4 MiB as floats): between slices the caller may cancel. */
const SLICE_VALUES = 1 << 20;
/** Longest row: one row must fit in memory. Real ones have 28,672 values at most. */
const MAX_ROW_VALUES = 1 << 26;
/** Largest magnitude that still rounds to a finite half. */
const MAX_HALF = 65_519;

/** A tensor and the type to store it in. */
export interface TensorJob {
  source: TensorSource;
  type: GgmlType;
}

/** How to write. */
export interface WriteOptions {
  path: string;
  /** Replace an existing file. */
  force?: boolean;
  metadata: ReadonlyMap<string, MetadataValue>;
  jobs: readonly TensorJob[];
  encoder: RowEncoder;
  imatrix?: Imatrix;
  /** Label of the progress reports. */
  label: string;
  signal?: AbortSignal;
  onProgress?: ProgressListener;
}

/** What was written. */
export interface WriteResult {
  path: string;
  fileBytes: number;
  tensorCount: number;
  /** Bytes by type, in order of first use. */
  typeBytes: ReadonlyMap<GgmlType, number>;
  /** Tensors whose encoding used the importance matrix for at least one expert. */
  importanceTensors: number;
  seconds: number;
}

/** The declaration of a job's tensor. */
export function declarationOf({ source, type }: TensorJob): TensorDeclaration {
  return { name: source.name, type, dims: source.dims };
}

/**
 * Writes all tensors. Throws `usage` when the file exists, `io` when the disk is too small or fails, `cancelled`,
 * and whatever reading and encoding throw; then nothing is left behind.
 */
export async function writeTensors(options: WriteOptions): Promise<WriteResult> {
  const { path, metadata, jobs, onProgress, label } = options;
  if (existsSync(path) && !options.force) {
    throw new Ds4Error("usage", `${path} exists; choose another name, or --force to replace it`);
  }
  for (const { source, type } of jobs) {
    if (blockFormat(type).encode === undefined && !source.exactTypes.includes(type)) {
      throw new Ds4Error(
        "unsupported-type",
        `tensor ${quotedText(source.name)}: ${type} can be read but not written; choose another recipe or type`,
      );
    }
    if (source.dims[0] > MAX_ROW_VALUES) {
      throw new Ds4Error(
        "convert",
        `tensor ${quotedText(source.name)}: expected rows of at most ${MAX_ROW_VALUES} values, found ${source.dims[0]}`,
      );
    }
  }
  const startMs = performance.now();
  const writer = new GgufWriter(path, { metadata, tensors: jobs.map(declarationOf) });
  try {
    checkDisk(path, writer.fileBytes);
    const typeBytes = new Map<GgmlType, number>();
    const total = writer.tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);
    let done = 0;
    let importanceTensors = 0;
    for (const [index, job] of jobs.entries()) {
      const { name, bytes } = writer.tensors[index];
      const used = await writeTensor(writer, job, options, (written) => {
        done += written;
        // The last report says that all is done, which it is only after the sync.
        if (done < total) onProgress?.({ label, done, total, unit: "bytes", detail: name });
      });
      if (used) importanceTensors++;
      typeBytes.set(job.type, (typeBytes.get(job.type) ?? 0) + bytes);
    }
    writer.finish();
    onProgress?.({ label, done: total, total, unit: "bytes" });
    const seconds = (performance.now() - startMs) / 1000;
    const { fileBytes, tensors } = writer;
    return { path, fileBytes, tensorCount: tensors.length, typeBytes, importanceTensors, seconds };
  } catch (error) {
    writer.abort();
    throw error;
  }
}

/** Writes one tensor by slices that never cross experts; returns whether importance was used. */
async function writeTensor(
  writer: GgufWriter,
  job: TensorJob,
  options: WriteOptions,
  onWritten: (bytes: number) => void,
): Promise<boolean> {
  const { source, type } = job;
  const [columns, rowsPerExpert = 1, experts = 1, outer = 1] = source.dims;
  const isExact = source.exactTypes.includes(type);
  const sliceRows = Math.max(1, Math.floor(SLICE_VALUES / columns));
  let used = false;
  for (let expert = 0; expert < experts * outer; expert++) {
    const importance = isExact ? null : importanceOf(job, expert, options.imatrix);
    used ||= importance !== null;
    for (let row = 0; row < rowsPerExpert; row += sliceRows) {
      const rows = Math.min(sliceRows, rowsPerExpert - row);
      const firstRow = expert * rowsPerExpert + row;
      const bytes = isExact
        ? source.readExact(type, firstRow, rows)
        : encode(job, firstRow, rows, options.encoder, importance);
      writer.writeTensor(source.name, bytes);
      onWritten(bytes.length);
      await setImmediate();
      if (options.signal?.aborted) throw new CancelledError(`cancelled; ${options.path} was not written`);
    }
  }
  return used;
}

function importanceOf({ source, type }: TensorJob, expert: number, imatrix: Imatrix | undefined) {
  if (imatrix === undefined || PLAIN_TYPES.includes(type)) return null;
  const [columns, , experts = 1, outer = 1] = source.dims;
  return imatrix.importance(source.name, expert, columns, experts * outer);
}

/** Types that round each value by itself. */
const PLAIN_TYPES: readonly GgmlType[] = ["F32", "F16", "BF16", "I32"];

function encode(
  { source, type }: TensorJob,
  firstRow: number,
  rows: number,
  encoder: RowEncoder,
  importance: Float32Array | null,
): Uint8Array {
  const values = source.readRows(firstRow, rows);
  try {
    if (type === "F32") return floatBytes(values);
    if (type === "F16") checkHalfRange(values);
    return encoder.encodeRows(type, values, rows, source.dims[0], importance);
  } catch (error) {
    if (!(error instanceof Ds4Error)) throw error;
    const where = `tensor ${quotedText(source.name)}, rows from ${firstRow}`;
    throw new Ds4Error(error.code, `${where}: ${error.message}`, { cause: error });
  }
}

/** The encoder goes value by value, which would take hours here for a large model. */
function floatBytes(values: Float32Array): Uint8Array {
  for (let i = 0; i < values.length; i++) {
    if (Math.abs(values[i]) < Number.POSITIVE_INFINITY) continue;
    throw new Ds4Error("convert", `value ${i} is ${values[i]}; the input is damaged`);
  }
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

function checkHalfRange(values: Float32Array): void {
  for (let i = 0; i < values.length; i++) {
    if (!(Math.abs(values[i]) > MAX_HALF)) continue;
    throw new Ds4Error("convert", `${values[i]} does not fit F16; use the recipe mxfp4 or f32`);
  }
}

/** Better at the start than after an hour. File systems that give no figure are trusted. */
function checkDisk(path: string, fileBytes: number): void {
  let freeBytes: number;
  try {
    const { bavail, bsize } = statfsSync(dirname(path));
    freeBytes = bavail * bsize;
  } catch {
    return;
  }
  if (freeBytes >= fileBytes) return;
  throw new Ds4Error(
    "io",
    `${path} needs ${formatBytes(fileBytes)} of disk, ${formatBytes(freeBytes)} are free; nothing was written`,
  );
}
