/**
 * How the CUDA backend keeps rows of keys and values: as float16, or as sums of two halves, which takes twice the memory
 * and agrees with float32 to 22 bits.
 */
export type KvType = "f16" | "f16x2";

/** All of them, the default first. */
export const KV_TYPES: readonly KvType[] = ["f16", "f16x2"];
