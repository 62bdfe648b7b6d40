// Where bytes come from: a file, memory, or anything that can read at an offset.

/** Random access to a fixed number of bytes. Offsets are safe integers, files may exceed 4 GiB. */
export interface ByteSource {
  /** Name for messages. */
  readonly name: string;
  readonly sizeBytes: number;
  /** The open file's descriptor, when it is a file; valid until `close`. */
  readonly descriptor?: number;
  /** Fills `target` completely from `offsetBytes`. Throws `io` on a short read or an error. */
  readInto(target: Uint8Array, offsetBytes: number): void;
  close(): void;
}
