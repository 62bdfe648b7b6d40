// Speed at context frontiers: one KV state grows to each frontier, only the new suffix is timed as prefill, then
// a fixed greedy continuation is timed as decode, and the state is put back. Snapshots stay outside the timing.
// Knows the Backend interface only.
import type { Backend, KvState, TopLogits } from "../backend/backend.ts";
import { CancelledError, Ds4Error, UsageError } from "../core/errors.ts";
import { median } from "../core/median.ts";
import type { ProgressListener } from "../core/progress.ts";

/** What to measure. */
export interface FrontierOptions {
  /** First and last frontier in tokens. */
  ctxStart: number;
  ctxMax: number;
  /** Linear step in tokens, used when `stepMul` is 1. */
  stepIncr: number;
  /** Multiplicative step, 1 = linear. */
  stepMul: number;
  /** Greedy tokens after each frontier; 0 = prefill only. */
  genTokens: number;
  /** Tokens per prefill call; default the backend's own maximum. */
  chunkTokens?: number;
  /** Tokens of KV state to allocate; default and least: the last frontier, `genTokens` and one more. */
  allocTokens?: number;
  /** Never generated: end-of-sequence tokens, so that every frontier decodes the same number of tokens. */
  bannedTokens?: readonly number[];
  onProgress?: ProgressListener;
  /** Called with each row as soon as it is measured, so that a cancelled run keeps what it has. */
  onRow?: (row: FrontierRow) => void;
  signal?: AbortSignal;
  /** Milliseconds, monotonic; replaced in tests. */
  now?: () => number;
}

/** One frontier's figures. */
export interface FrontierRow {
  ctxTokens: number;
  /** Tokens of the timed suffix. */
  prefillTokens: number;
  prefillTps: number;
  genTokens: number;
  genTps: number;
  /** Time of the first generated token. */
  genFirstMs: number;
  /** The tokens after the first, and their rate. */
  genSteadyTokens: number;
  genSteadyTps: number;
  kvcacheBytes: number;
  /** From the start of the suffix until the first new token is known. */
  ttftMs: number;
  /** Median and largest time between two generated tokens; 0 when fewer than two were. */
  gapMedianMs: number;
  gapMaxMs: number;
}

/** The frontiers of a sweep, ascending, ending at or below `ctxMax`. Throws `usage` on a step that never ends. */
export function listFrontiers(
  options: Pick<FrontierOptions, "ctxStart" | "ctxMax" | "stepIncr" | "stepMul">,
): number[] {
  const { ctxStart, ctxMax, stepIncr, stepMul } = options;
  if (ctxStart < 1 || ctxMax < ctxStart) {
    throw new UsageError(`expected 1 <= --ctx-start <= --ctx-max, got ${ctxStart} and ${ctxMax}`);
  }
  if (stepMul < 1 || (stepMul === 1 && stepIncr < 1)) {
    throw new UsageError(`expected --step-mul > 1 or --step-incr >= 1, got ${stepMul} and ${stepIncr}`);
  }
  const frontiers: number[] = [];
  for (let ctx = ctxStart; ctx <= ctxMax; ) {
    frontiers.push(ctx);
    ctx = stepMul > 1 ? Math.max(ctx + 1, Math.round(ctx * stepMul)) : ctx + stepIncr;
  }
  return frontiers;
}

/** Rows of a sweep and its first frontier measured again at the end. */
export interface FrontierResult {
  rows: FrontierRow[];
  repeat: FrontierRow;
}

/**
 * Runs the sweep over `tokens` (at least `ctxMax` of them), the first frontier repeated at the end in a fresh
 * state: `repeat` differing from `rows[0]` tells of heat, memory pressure or other load. Lets the event loop run
 * between forward calls, outside the timing. Throws `usage` for frontiers that cannot be, `cancelled`.
 */
export async function runFrontierBench(
  backend: Backend,
  tokens: Int32Array,
  options: FrontierOptions,
): Promise<FrontierResult> {
  const frontiers = listFrontiers(options);
  const last = frontiers[frontiers.length - 1];
  if (tokens.length < last) {
    throw new UsageError(
      `the prompt has ${tokens.length} tokens, the last frontier needs ${last}; give a longer file`,
    );
  }
  const neededTokens = last + options.genTokens + 1;
  const allocTokens = options.allocTokens ?? neededTokens;
  if (allocTokens < neededTokens) {
    throw new UsageError(`--ctx-alloc: this sweep needs at least ${neededTokens} tokens, got ${allocTokens}`);
  }
  const kv = backend.createKv(allocTokens);
  try {
    // One untimed short call: first-use costs (page faults, thread start) belong to no frontier.
    backend.forward([{ kv, tokens: tokens.slice(0, Math.min(8, tokens.length)), logits: "last" }]);
    kv.reset();
    const rows: FrontierRow[] = [];
    for (const frontier of frontiers) {
      const row = await measureFrontier(backend, kv, tokens, frontier, options);
      rows.push(row);
      options.onRow?.(row);
    }
    kv.reset();
    return { rows, repeat: await measureFrontier(backend, kv, tokens, frontiers[0], options) };
  } finally {
    kv.close();
  }
}

async function measureFrontier(
  backend: Backend,
  kv: KvState,
  tokens: Int32Array,
  frontier: number,
  options: FrontierOptions,
): Promise<FrontierRow> {
  const suffix = tokens.subarray(kv.lengthTokens, frontier);
  const { logits, prefillMs } = await prefill(backend, kv, suffix, frontier, options);
  const snapshot = options.genTokens > 0 ? kv.snapshot() : null;
  const stepsMs = await decode(backend, kv, logits, frontier, options);
  if (snapshot !== null) kv.restore(snapshot);
  return {
    ctxTokens: frontier,
    prefillTokens: suffix.length,
    prefillTps: tokensPerSecond(suffix.length, prefillMs),
    kvcacheBytes: kv.bytes,
    ttftMs: prefillMs,
    ...decodeFigures(stepsMs),
  };
}

/** The decode columns of a row from the milliseconds of each generated token. */
export function decodeFigures(stepsMs: readonly number[]) {
  const steady = stepsMs.slice(1);
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  return {
    genTokens: stepsMs.length,
    genTps: tokensPerSecond(stepsMs.length, sum(stepsMs)),
    genFirstMs: stepsMs[0] ?? 0,
    genSteadyTokens: steady.length,
    genSteadyTps: tokensPerSecond(steady.length, sum(steady)),
    gapMedianMs: median(steady),
    gapMaxMs: Math.max(0, ...steady),
  };
}

/** 0 when nothing was counted or no time passed. */
export function tokensPerSecond(count: number, ms: number): number {
  return count > 0 && ms > 0 ? (count * 1000) / ms : 0;
}

async function prefill(
  backend: Backend,
  kv: KvState,
  suffix: Int32Array,
  frontier: number,
  options: FrontierOptions,
): Promise<{ logits: Float32Array; prefillMs: number }> {
  const now = options.now ?? (() => performance.now());
  const chunkTokens = Math.min(options.chunkTokens ?? backend.maxBatchTokens, backend.maxBatchTokens);
  let logits: Float32Array = new Float32Array(0);
  let prefillMs = 0;
  for (let start = 0; start < suffix.length; start += chunkTokens) {
    await yieldToEvents(options.signal);
    const chunk = suffix.slice(start, start + chunkTokens);
    const isLast = start + chunk.length === suffix.length;
    const started = now();
    [logits] = backend.forward([{ kv, tokens: chunk, logits: isLast ? "last" : "none" }]).logits;
    prefillMs += now() - started;
    const done = start + chunk.length;
    const label = `prefill to ${frontier}`;
    options.onProgress?.({ label, done, total: suffix.length, unit: "tokens" });
  }
  return { logits, prefillMs };
}

async function decode(
  backend: Backend,
  kv: KvState,
  firstLogits: Float32Array,
  frontier: number,
  options: FrontierOptions,
): Promise<number[]> {
  const now = options.now ?? (() => performance.now());
  const label = `decode at ${frontier}`;
  const stepsMs: number[] = [];
  let logits: Float32Array | TopLogits = firstLogits;
  for (let index = 0; index < options.genTokens; index++) {
    await yieldToEvents(options.signal);
    const started = now();
    const token = greedyToken(logits, options.bannedTokens ?? []);
    // What a session asks for: candidates.
    const result = backend.forward([{ kv, tokens: Int32Array.of(token), logits: "top" }]);
    logits = result.top[0] ?? result.logits[0];
    stepsMs.push(now() - started);
    options.onProgress?.({ label, done: index + 1, total: options.genTokens, unit: "tokens" });
  }
  return stepsMs;
}

/** Index of the largest logit that is not banned, of a row or its candidates; the lowest id wins ties. */
export function greedyToken(logits: Float32Array | TopLogits, banned: readonly number[]): number {
  if (!(logits instanceof Float32Array)) {
    return logits.ids.find((id) => !banned.includes(id)) ?? greedyToken(logits.row(), banned);
  }
  let best = -1;
  for (let id = 0; id < logits.length; id++) {
    if (banned.includes(id)) continue;
    if (best < 0 || logits[id] > logits[best]) best = id;
  }
  if (best < 0) throw new Ds4Error("session", "every token is banned: nothing can be generated");
  return best;
}

// Forward calls block the thread: without a turn of the event loop Ctrl+C would never be seen.
async function yieldToEvents(signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve) => setImmediate(resolve));
  if (signal?.aborted) throw new CancelledError("the benchmark was cancelled");
}
