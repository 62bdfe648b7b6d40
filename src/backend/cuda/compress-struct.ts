// The parameter struct of the compressor, byte for byte: native/cuda/compress.cuh.
import type { KernelArg } from "./kernel-args.ts";
import { StructBytes } from "./matrix-structs.ts";
import type { CompressArg } from "./sequence-steps.ts";

/** Bytes of struct Compress: a multiple of 8. */
export const COMPRESS_BYTES = 104;

/** Appends the struct; null: nothing to do. */
export function addCompress(bytes: StructBytes, arg: CompressArg | null): StructBytes {
  if (arg === null) return bytes.skip(COMPRESS_BYTES);
  const { compressor: c, state, kv, gate } = arg;
  const { windowBlocks, blocks } = compressBlocks(arg);
  bytes.address(state).address(kv).address(gate).address(c.slots).address(c.ape).address(c.normWeight);
  bytes.address(c.frequencies).address(c.entries).i32(c.slotBit).i32(c.rowParts).i32(c.ratio).i32(c.width);
  return bytes.i32(c.projected).i32(c.pairs).i32(windowBlocks).i32(blocks).f32(c.normEpsilon).i32(0);
}

/** struct Compress alone. */
export function compressStruct(arg: CompressArg): KernelArg {
  return addCompress(new StructBytes(COMPRESS_BYTES), arg).arg();
}

const MOST_CARRY_BLOCKS = 64;

/** Blocks for windows that may close, and in all: the rest carry rows. */
export function compressBlocks({ compressor, count }: CompressArg): { windowBlocks: number; blocks: number } {
  const { ratio, width, projected } = compressor;
  const windowBlocks = Math.floor((ratio - 1 + count) / ratio);
  const carryBlocks = Math.min(MOST_CARRY_BLOCKS, count + (projected > width ? ratio : 0));
  return { windowBlocks, blocks: windowBlocks + carryBlocks };
}
