// What both forms of an importance matrix look like once their tables are read: one slot a tensor, values still on disk.

/** Ending of the tensor of sums in the GGUF form. */
export const SUMS_SUFFIX = ".in_sum2";
/** Ending of the tensor of counts in the GGUF form. */
export const COUNTS_SUFFIX = ".counts";

/** One tensor's place in the file. */
export interface ImatrixSlot {
  /** Values in all: experts x columns. */
  sumCount: number;
  /** Rows seen, one an expert; a single one holds for all experts. */
  counts: Float32Array;
  /** Reads `count` sums from index `start`. Throws `io`. */
  read(start: number, count: number): Float32Array;
}

/** The table of an open file. */
export interface ImatrixIndex {
  slots: ReadonlyMap<string, ImatrixSlot>;
  datasets: readonly string[];
  chunkCount: number | undefined;
  close(): void;
}
