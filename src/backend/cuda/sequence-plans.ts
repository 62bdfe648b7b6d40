// How the steps with sequence state are cut into blocks, and the scratch memory that follows from it. Everything here
// depends on shapes and upper bounds only, never on a position, so a captured decode step stays valid as a sequence grows.
import { Ds4Error } from "../../core/errors.ts";
import type { DeviceInfo } from "./driver.ts";
import { HALF_BYTES, type RowParts } from "./half-rows.ts";

/** Bytes of one sequence's `DecodeState` (native/cuda/decode_state.cuh). */
export const DECODE_STATE_BYTES = 16;

/** The words of a `DecodeState`. `slots`: bit i is the valid slot of the compressors with slot bit i. */
export function decodeStateWords(startTokens: number, countTokens: number, slots: number): Int32Array {
  return Int32Array.of(startTokens, countTokens, slots, 0);
}

/** What attention's cut depends on. */
export interface AttentionShape {
  heads: number;
  dim: number;
  countTokens: number;
  /** Upper bound of the rows that a token attends to: window + chosen or visible entries. */
  mostKeys: number;
  rowParts: RowParts;
}

/** Heads of a block. */
type HeadBlock = 16 | 32 | 64;

/** A cut of attention. */
export interface AttentionPlan {
  kernel: `attend_${HeadBlock}x${RowParts}`;
  headBlocks: number;
  /** Blocks that share a token's keys; above 1 their sums are combined. */
  shares: number;
  sharedBytes: number;
  partBytes: number;
  statBytes: number;
}

const TILE_KEYS = 32;
const SCORE_ROW_BYTES = 144;
const PAD_VALUES = 8;
/** Score slices of a block of so many heads, as in attention.cu. */
const SLICES = { 16: 4, 32: 2, 64: 4 } as const;
const STATIC_SHARED_BYTES = 1024;

function attendSharedBytes(heads: HeadBlock, dim: number, parts: RowParts): number {
  // 16 heads keep their queries in registers; with two parts their tiles are not buffered twice.
  const buffers = heads === 16 && parts === 2 ? 1 : 2;
  const rows = (heads === 16 ? 0 : heads) + buffers * TILE_KEYS;
  return rows * parts * (dim + PAD_VALUES) * HALF_BYTES + SLICES[heads] * heads * SCORE_ROW_BYTES;
}

/** Blocks of more heads than 16 that there are kernels for, largest first. */
const WIDE_BLOCKS = { 1: [64, 32], 2: [32] } as const;

/**
 * Many tokens: as many heads per block as shared memory allows, keys in one share. Few: 16 heads per block, and keys
 * split until the device is full. Throws `cuda` for a head width that the kernels lack.
 */
export function planAttention(device: DeviceInfo, shape: AttentionShape): AttentionPlan {
  const { heads, dim, countTokens, mostKeys, rowParts } = shape;
  requireShape(dim % 16 === 0 && dim <= 512, `head width ${dim}`, "a multiple of 16 up to 512");
  const fits = (block: HeadBlock) =>
    attendSharedBytes(block, dim, rowParts) + STATIC_SHARED_BYTES <= device.sharedBytesPerBlock;
  const wide = WIDE_BLOCKS[rowParts].find((block) => heads > block / 2 && fits(block)) ?? 16;
  const full = countTokens * Math.ceil(heads / wide) >= device.multiprocessors;
  const block = full ? wide : 16;
  const headBlocks = Math.ceil(heads / block);
  const free = Math.floor((2 * device.multiprocessors) / (headBlocks * countTokens));
  const shares = full ? 1 : Math.max(1, Math.min(free, Math.ceil(mostKeys / TILE_KEYS)));
  const rows = shares > 1 ? countTokens * shares * heads : 0;
  return {
    kernel: `attend_${block}x${rowParts}`,
    headBlocks,
    shares,
    sharedBytes: attendSharedBytes(block, dim, rowParts),
    partBytes: rows * dim * 4,
    statBytes: rows * 8,
  };
}

/** Upper bounds of a plan's scratch for any number of tokens. */
export function attentionScratchBytes(
  device: DeviceInfo,
  heads: number,
  dim: number,
): { partBytes: number; statBytes: number } {
  const rows = 2 * device.multiprocessors * Math.min(16, heads);
  return { partBytes: rows * dim * 4, statBytes: rows * 8 };
}

/** What the indexer's cut depends on. */
export interface SelectionShape {
  heads: number;
  dim: number;
  topK: number;
  countTokens: number;
  /** Upper bound of the entries that the last token sees. */
  mostEntries: number;
  rowParts: RowParts;
}

/** A cut of the indexer's scores and choice. */
export interface SelectionPlan {
  /** Tokens per launch. */
  rows: number;
  /** Values from one token's scores to the next. */
  scoreStride: number;
  scoreKernel: `index_${"few" | "scores"}_x${RowParts}`;
  scoreBlocks: number;
  scoreThreads: number;
  sharedBytes: number;
  /** Entries of a chunk whose best are found by a block of its own; 0: one block per token does all. */
  chunk: number;
  chunks: number;
  scoreBytes: number;
  candidateBytes: number;
}

/** Scores of prefill are computed for as many tokens at a time as fit in this. */
const SCORE_BUDGET_BYTES = 64 * 2 ** 20;
const ENTRIES_PER_SCORE_BLOCK = 128;
/** Up to so many tokens of a launch are cut into smaller pieces: kFewEntries of index-few.cuh. */
const FEW_ROWS = 4;
const FEW_ENTRIES = 16;
const MOST_ENTRIES_PER_SCORE_BLOCK = 4096;
const ONE_BLOCK_ENTRIES = 40_000;
const LEAST_CHUNK = 8192;

/** Throws `cuda` for an indexer that the kernels lack. */
export function planSelection(device: DeviceInfo, shape: SelectionShape): SelectionPlan {
  const { heads, dim, topK, countTokens } = shape;
  requireShape(dim % 32 === 0 && dim <= 128, `indexer head width ${dim}`, "32, 64, 96 or 128");
  requireShape(heads <= 128, `${heads} indexer heads`, "at most 128");
  const mostEntries = Math.max(1, shape.mostEntries);
  const scoreStride = Math.ceil(mostEntries / 4) * 4;
  const rows = Math.max(1, Math.min(countTokens, Math.floor(SCORE_BUDGET_BYTES / (scoreStride * 4))));
  const few = rows <= FEW_ROWS;
  const headTiles = Math.ceil(heads / 8);
  const wanted = Math.max(
    Math.ceil((4 * device.multiprocessors) / rows),
    few ? 1 : Math.ceil(mostEntries / MOST_ENTRIES_PER_SCORE_BLOCK),
  );
  const perBlock = few ? FEW_ENTRIES : ENTRIES_PER_SCORE_BLOCK;
  const scoreBlocks = Math.min(wanted, Math.ceil(mostEntries / perBlock));
  const cuts = mostEntries > ONE_BLOCK_ENTRIES && rows < device.multiprocessors;
  const chunk = cuts ? Math.max(LEAST_CHUNK, 2 * topK) : 0;
  const chunks = cuts ? Math.ceil(mostEntries / chunk) : 0;
  return {
    rows,
    scoreStride,
    scoreKernel: `index_${few ? "few" : "scores"}_x${shape.rowParts}`,
    scoreBlocks,
    scoreThreads: few ? 32 * headTiles : 128,
    sharedBytes: few ? 0 : headTiles * 8 * dim * 4,
    chunk,
    chunks,
    scoreBytes: rows * scoreStride * 4,
    candidateBytes: rows * chunks * topK * 4,
  };
}

/** Upper bounds of a plan's scratch for batches of up to `maxBatchTokens` and `mostEntries` entries. */
export function selectionScratchBytes(
  device: DeviceInfo,
  topK: number,
  maxBatchTokens: number,
  mostEntries: number,
): { scoreBytes: number; candidateBytes: number } {
  const rowBytes = Math.max(16, Math.ceil(mostEntries / 4) * 16);
  const scoreBytes = Math.max(rowBytes, Math.min(SCORE_BUDGET_BYTES, maxBatchTokens * rowBytes));
  const cutRows = Math.min(maxBatchTokens, device.multiprocessors, Math.floor(scoreBytes / rowBytes));
  const chunks =
    mostEntries > ONE_BLOCK_ENTRIES ? Math.ceil(mostEntries / Math.max(LEAST_CHUNK, 2 * topK)) : 0;
  return { scoreBytes, candidateBytes: cutRows * chunks * topK * 4 };
}

/** Throws `cuda` when a model's shape is not among those the kernels are written for. */
export function requireShape(holds: boolean, found: string, expected: string): void {
  if (holds) return;
  throw new Ds4Error("cuda", `the CUDA kernels expect ${expected}, found ${found}; run with --cpu`);
}
