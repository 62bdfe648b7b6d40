// What every backend checks before it computes, and how the ranges of a call lie in one batch.
import { Ds4Error } from "../core/errors.ts";
import type { ModelSpec } from "../model/model-spec.ts";
import type { KvState, LogitsWanted, TokenRange } from "./backend.ts";

/** One range of the batch: rows first..first+count of every activation, positions from `start` on. */
export interface Segment<Kv extends KvState> {
  kv: Kv;
  first: number;
  count: number;
  start: number;
  logits: LogitsWanted;
}

/** All ranges' tokens, one after another. */
export interface TokenBatch<Kv extends KvState> {
  tokens: Int32Array;
  positions: Int32Array;
  segments: readonly Segment<Kv>[];
}

/** What a backend knows of itself for the checks. */
export interface BatchLimits<Kv extends KvState> {
  spec: ModelSpec;
  maxBatchTokens: number;
  /** True for an open state of this backend. */
  owns(kv: KvState): kv is Kv;
}

/**
 * Checks all ranges before anything is computed, and lays them out one after another. Throws `session` (batch size,
 * foreign or shared state, token ids) or `context-full`.
 */
export function layOutRanges<Kv extends KvState>(
  ranges: readonly TokenRange[],
  limits: BatchLimits<Kv>,
): TokenBatch<Kv> {
  const total = ranges.reduce((sum, range) => sum + range.tokens.length, 0);
  if (total > limits.maxBatchTokens) {
    throw new Ds4Error(
      "session",
      `a forward call takes ${limits.maxBatchTokens} tokens, found ${total}; split it`,
    );
  }
  const tokens = new Int32Array(total);
  const positions = new Int32Array(total);
  const segments: Segment<Kv>[] = [];
  let first = 0;
  for (const range of ranges) {
    const kv = checkedState(range, limits, segments);
    const count = range.tokens.length;
    const start = kv.lengthTokens;
    tokens.set(range.tokens, first);
    for (let i = 0; i < count; i++) positions[first + i] = start + i;
    segments.push({ kv, first, count, start, logits: range.logits });
    first += count;
  }
  return { tokens, positions, segments };
}

/** How many rows of logits a segment wants: its last ones. */
export function wantedRows({ logits, count }: Pick<Segment<KvState>, "logits" | "count">): number {
  return { none: 0, last: 1, top: 1, all: count }[logits];
}

/** Views of each segment's rows of `logits` [rows, vocabSize], where `counts` rows of each lie one after another. */
export function rowsOfSegments(
  logits: Float32Array,
  counts: readonly number[],
  vocabSize: number,
): Float32Array[] {
  let row = 0;
  return counts.map((count) => {
    const from = row * vocabSize;
    row += count;
    return logits.subarray(from, row * vocabSize);
  });
}

/** Throws `session` unless 1 <= capacityTokens <= the model's context. */
export function checkKvCapacity(spec: ModelSpec, capacityTokens: number): void {
  const limit = spec.contextTokens;
  if (!Number.isInteger(capacityTokens) || capacityTokens < 1 || capacityTokens > limit) {
    throw new Ds4Error("session", `KV capacity: expected 1..${limit} tokens, found ${capacityTokens}`);
  }
}

function checkedState<Kv extends KvState>(
  { kv, tokens }: TokenRange,
  { spec, owns }: BatchLimits<Kv>,
  earlier: readonly Segment<Kv>[],
): Kv {
  const refuse = (text: string) => new Ds4Error("session", text);
  if (!owns(kv)) throw refuse("a range's KV state is closed or belongs to another backend");
  if (earlier.some((segment) => segment.kv === kv)) throw refuse("two ranges share a KV state");
  if (tokens.length === 0) throw refuse("a range holds no tokens, expected at least one");
  const wrong = tokens.findIndex((token) => token < 0 || token >= spec.vocabSize);
  if (wrong >= 0) throw refuse(`token id ${tokens[wrong]} at ${wrong}: expected 0..${spec.vocabSize - 1}`);
  if (kv.lengthTokens + tokens.length > kv.capacityTokens) {
    throw new Ds4Error(
      "context-full",
      `${tokens.length} tokens do not fit: the KV state holds ${kv.lengthTokens} of ${kv.capacityTokens}`,
    );
  }
  return kv;
}
