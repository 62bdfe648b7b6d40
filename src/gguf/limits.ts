// Named limits of the GGUF reader. Counts and lengths are also held against the bytes that are left in the file,
// so that no header can make the reader allocate more than the file's own size.

/** Longest metadata key. ggml itself writes keys below 64 bytes; 64 KiB is what the format allows in practice. */
export const MAX_KEY_BYTES = 65_536;
/** Longest tensor name. ggml truncates at 64; a kilobyte leaves room for other writers. */
export const MAX_TENSOR_NAME_BYTES = 1024;
/** Array nesting: real files have none; the rival engines stop at 8. */
export const MAX_ARRAY_DEPTH = 8;
/** Dimensions of a tensor, as in ggml. */
export const MAX_DIMS = 4;
/** Alignment bounds: below 8 the offsets of 64-bit data break, above 1 MiB padding could dwarf the data. */
export const MIN_ALIGNMENT = 8;
/** See MIN_ALIGNMENT. */
export const MAX_ALIGNMENT = 1_048_576;
/** Alignment when `general.alignment` is absent. */
export const DEFAULT_ALIGNMENT = 32;
/** Smallest bytes of a key (8 length + 1 + 4 type) and of a tensor info: bounds for the declared counts. */
export const MIN_KEY_BYTES = 13;
/** See MIN_KEY_BYTES. */
export const MIN_TENSOR_INFO_BYTES = 33;
/** Parts of a split file; the largest published splits have dozens. */
export const MAX_PARTS = 9999;
