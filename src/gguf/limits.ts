// Named limits of the GGUF reader. Counts and lengths are also held against the bytes that are left in the file,
// so that no header can make the reader allocate more than the file's own size.

/**
 * Largest header: a 129,280-token one takes 5.3 MB. Larger files are weights, and nothing in a header may make the
 * reader treat them as metadata.
 */
export const MAX_HEADER_BYTES = 268_435_456;
/** Keys of one file: real ones have about 60. Bounds the map, which takes ten times the bytes of a smallest key. */
export const MAX_KEYS = 16_384;
/** Tensors of one part: the official models have under 3,000, with every expert apart under 100,000. */
export const MAX_TENSORS = 131_072;
/** Longest string value. The longest real ones are chat templates of some 20 KB. */
export const MAX_STRING_BYTES = 16_777_216;
/** Strings, bools or arrays in all arrays together: each costs many times its bytes. Real files have 260,000. */
export const MAX_ARRAY_OBJECTS = 1_048_576;
/** Nested arrays in one file: each costs hundreds of bytes for the twelve it takes in the file. */
export const MAX_NESTED_ARRAYS = 65_536;
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
