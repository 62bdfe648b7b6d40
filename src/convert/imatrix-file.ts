// Importance matrices on disk: how strongly each input column of each matrix was driven by sample text. Reads
// llama.cpp's GGUF form and its older binary form, writes the GGUF form. A 256-expert model's matrix takes 450 MB, so
// values stay in the file and are read by slices.
import { Ds4Error } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { MetadataValue } from "../gguf/gguf-file.ts";
import { GgufWriter } from "../gguf/gguf-writer.ts";
import { openImatrixGguf } from "./imatrix-gguf.ts";
import { isLegacyImatrix, openImatrixLegacy } from "./imatrix-legacy.ts";
import { COUNTS_SUFFIX, type ImatrixIndex, type ImatrixSlot, SUMS_SUFFIX } from "./imatrix-slots.ts";

/** What was gathered for one matrix, or for the stack of an expert tensor. */
export interface ImatrixEntry {
  /** The tensor's name in the model, for example `blk.3.ffn_down_exps.weight`. */
  name: string;
  /** Sums of squared inputs, `[experts, columns]`; one expert for a plain matrix. */
  sums: Float32Array;
  /** Rows seen by each expert, `[experts]`. */
  counts: Float32Array;
}

/** An open importance matrix. Close it when done. */
export interface Imatrix {
  readonly path: string;
  /** Names of all tensors in it, in file order. */
  readonly names: readonly string[];
  /** Texts it was made from, as far as the file says. */
  readonly datasets: readonly string[];
  /** Chunks of text it was made from, if the file says. */
  readonly chunkCount: number | undefined;
  /**
   * Mean squared input of each column of one expert's matrix (expert 0 for a plain one), fresh memory. Null when the
   * tensor is not in the file or the expert never ran. Throws `convert` when the entry does not fit a tensor of
   * `columns` columns and `experts` experts, or holds values that are negative or not finite.
   */
  importance(tensorName: string, expert: number, columns: number, experts: number): Float32Array | null;
  /** The whole entry, for merging. Throws `convert` like `importance`, or when there is none of that name. */
  entry(tensorName: string): ImatrixEntry;
  close(): void;
}

/** Where a matrix came from; written into its metadata. */
export interface ImatrixOrigin {
  datasets?: readonly string[];
  chunkCount?: number;
  chunkTokens?: number;
}

/** Opens an importance matrix of either form. Throws `io`, `gguf` or `convert`; nothing stays open then. */
export function readImatrix(path: string): Imatrix {
  return new OpenImatrix(path, isLegacyImatrix(path) ? openImatrixLegacy(path) : openImatrixGguf(path));
}

/** Writes the GGUF form, whole or not at all. Throws `convert` for an entry that does not hold together, or `io`. */
export function writeImatrix(
  path: string,
  entries: readonly ImatrixEntry[],
  origin: ImatrixOrigin = {},
): void {
  for (const { name, sums, counts } of entries) {
    if (counts.length === 0 || sums.length === 0 || sums.length % counts.length !== 0) {
      throw new Ds4Error(
        "convert",
        `importance of ${quotedText(name)}: ${sums.length} sums cannot be shared by ${counts.length} experts`,
      );
    }
    checkValues(path, name, sums);
    checkValues(path, name, counts);
  }
  const writer = new GgufWriter(path, {
    metadata: originMetadata(origin),
    tensors: entries.flatMap(({ name, sums, counts }) => [
      { name: name + SUMS_SUFFIX, type: "F32", dims: [sums.length / counts.length, counts.length] },
      { name: name + COUNTS_SUFFIX, type: "F32", dims: [1, counts.length] },
    ]),
  });
  try {
    for (const { name, sums, counts } of entries) {
      writer.writeTensor(name + SUMS_SUFFIX, bytesOf(sums));
      writer.writeTensor(name + COUNTS_SUFFIX, bytesOf(counts));
    }
    writer.finish();
  } catch (error) {
    writer.abort();
    throw error;
  }
}

function originMetadata({ datasets = [], chunkCount, chunkTokens }: ImatrixOrigin) {
  const metadata = new Map<string, MetadataValue>([
    ["general.type", { type: "string", value: "imatrix" }],
    ["imatrix.datasets", { type: "array", elementType: "string", values: [...datasets] }],
  ]);
  if (chunkCount !== undefined) metadata.set("imatrix.chunk_count", { type: "u32", value: chunkCount });
  if (chunkTokens !== undefined) metadata.set("imatrix.chunk_size", { type: "u32", value: chunkTokens });
  return metadata;
}

class OpenImatrix implements Imatrix {
  readonly path: string;
  readonly names: readonly string[];
  readonly datasets: readonly string[];
  readonly chunkCount: number | undefined;
  readonly #index: ImatrixIndex;

  constructor(path: string, index: ImatrixIndex) {
    this.path = path;
    this.#index = index;
    this.names = [...index.slots.keys()];
    this.datasets = index.datasets;
    this.chunkCount = index.chunkCount;
  }

  importance(tensorName: string, expert: number, columns: number, experts: number): Float32Array | null {
    const slot = this.#index.slots.get(tensorName);
    if (slot === undefined) return null;
    if (slot.sumCount !== columns * experts || (slot.counts.length !== experts && slot.counts.length !== 1)) {
      throw new Ds4Error(
        "convert",
        `${this.path}: the importance of ${quotedText(tensorName)} has ${slot.sumCount} sums and ` +
          `${slot.counts.length} counts; the tensor has ${experts} x ${columns} inputs. It was made with another model.`,
      );
    }
    const count = slot.counts[slot.counts.length === 1 ? 0 : expert];
    if (count === 0) return null;
    const means = this.#sums(tensorName, slot, expert * columns, columns).map((sum) => sum / count);
    return means.some((mean) => mean > 0) ? means : null;
  }

  entry(tensorName: string): ImatrixEntry {
    const slot = this.#index.slots.get(tensorName);
    if (slot === undefined) {
      throw new Ds4Error("convert", `${this.path}: there is no importance of ${quotedText(tensorName)}`);
    }
    const sums = this.#sums(tensorName, slot, 0, slot.sumCount);
    return { name: tensorName, sums, counts: slot.counts.slice() };
  }

  close(): void {
    this.#index.close();
  }

  #sums(name: string, slot: ImatrixSlot, start: number, count: number): Float32Array {
    const sums = slot.read(start, count);
    checkValues(this.path, name, sums);
    return sums;
  }
}

function checkValues(path: string, name: string, values: Float32Array): void {
  const at = values.findIndex((value) => !(value >= 0 && value < Number.POSITIVE_INFINITY));
  if (at < 0) return;
  throw new Ds4Error(
    "convert",
    `${path}: the importance of ${quotedText(name)} holds ${values[at]} at index ${at}; ` +
      "expected finite numbers >= 0. Make the matrix anew.",
  );
}

function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
