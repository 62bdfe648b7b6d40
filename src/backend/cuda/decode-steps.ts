// Launches around the chains that decode one token (decode-chain.ts): inputs of one row, float32 on the device. They may start
// before the work ahead of them has ended and wait where they need its results.
import { compressBlocks } from "./compress-struct.ts";
import type { CudaContext } from "./context.ts";
import { STREAM_THREADS } from "./decode-plans.ts";
import {
  type DecodeRowsArg,
  decodeRowsStruct,
  type HyperTailArg,
  hyperTailStruct,
} from "./decode-structs.ts";
import type { KernelArg } from "./kernel-args.ts";

function launch(
  { module, stream }: CudaContext,
  name: string,
  blocks: number,
  args: readonly KernelArg[],
  threads: number,
): void {
  module.launch(stream, name, [blocks, 1, 1], [threads, 1, 1], 0, args, true);
}

/** Partial sums of streams that no block has written. */
export function hyperStart(ctx: CudaContext, tail: HyperTailArg): void {
  launch(ctx, "hyper_start", Math.ceil(tail.hidden / 32), [hyperTailStruct(tail)], STREAM_THREADS);
}

/** Norms and rotation of queries and key, the key's row in the window; beside them, rows enter compressors. */
export function decodeRows(ctx: CudaContext, rows: DecodeRowsArg): void {
  const warps = rows.heads + rows.indexerHeads + 1;
  const perBlock = STREAM_THREADS / 32;
  const beside = rows.compressors.reduce((sum, each) => sum + compressBlocks(each).blocks, 0);
  launch(ctx, "decode_rows", Math.ceil(warps / perBlock) + beside, [decodeRowsStruct(rows)], STREAM_THREADS);
}
