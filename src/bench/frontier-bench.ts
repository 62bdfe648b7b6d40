// Speed at context frontiers: one KV state grows to each frontier, only the new suffix is timed as prefill, then
// a fixed greedy continuation is timed as decode, and the state is put back. Snapshots stay outside the timing.
// Knows the Backend interface only.
import type { Backend, KvState } from "../backend/backend.ts";
import { CancelledError, Ds4Error, UsageError } from "../core/errors.ts";
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
  /** Never generated: end-of-sequence tokens, so that every frontier decodes the same number of tokens. */
  bannedTokens?: readonly number[];
  onProgress?: ProgressListener;
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

/**
 * Runs the sweep over `tokens` (at least `ctxMax` of them), the first frontier repeated at the end in a fresh
 * state: `repeat` differing from `rows[0]` tells of heat, memory pressure or other load. Throws `cancelled`.
 */
export function runFrontierBench(
  backend: Backend,
  tokens: Int32Array,
  options: FrontierOptions,
): { rows: FrontierRow[]; repeat: FrontierRow } {
  const frontiers = listFrontiers(options);
  const last = frontiers[frontiers.length - 1];
  if (tokens.length < last) {
    throw new UsageError(
      `the prompt has ${tokens.length} tokens, the last frontier needs ${last}; give a longer file`,
    );
  }
  const kv = backend.createKv(last + options.genTokens + 1);
  try {
    // One untimed short call: first-use costs (page faults, thread start) belong to no frontier.
    backend.forward([{ kv, tokens: tokens.slice(0, Math.min(8, tokens.length)), logits: "last" }]);
    kv.reset();
    const rows = frontiers.map((frontier) => measureFrontier(backend, kv, tokens, frontier, options));
    kv.reset();
    return { rows, repeat: measureFrontier(backend, kv, tokens, frontiers[0], options) };
  } finally {
    kv.close();
  }
}

function measureFrontier(
  backend: Backend,
  kv: KvState,
  tokens: Int32Array,
  frontier: number,
  options: FrontierOptions,
): FrontierRow {
  const now = options.now ?? (() => performance.now());
  const suffix = tokens.subarray(kv.lengthTokens, frontier);
  const started = now();
  let logits = prefill(backend, kv, suffix, frontier, options);
  const prefillMs = now() - started;
  const snapshot = options.genTokens > 0 ? kv.snapshot() : null;
  const stamps = [now()];
  for (let i = 0; i < options.genTokens; i++) {
    checkCancelled(options.signal);
    const token = greedyToken(logits, options.bannedTokens ?? []);
    logits = backend.forward([{ kv, tokens: Int32Array.of(token), logits: "last" }]).logits[0];
    stamps.push(now());
  }
  if (snapshot !== null) kv.restore(snapshot);
  const steadyTokens = Math.max(0, options.genTokens - 1);
  const rate = (count: number, ms: number) => (count > 0 && ms > 0 ? (count * 1000) / ms : 0);
  return {
    ctxTokens: frontier,
    prefillTokens: suffix.length,
    prefillTps: rate(suffix.length, prefillMs),
    genTokens: options.genTokens,
    genTps: rate(options.genTokens, stamps[stamps.length - 1] - stamps[0]),
    genFirstMs: options.genTokens > 0 ? stamps[1] - stamps[0] : 0,
    genSteadyTokens: steadyTokens,
    genSteadyTps: steadyTokens > 0 ? rate(steadyTokens, stamps[stamps.length - 1] - stamps[1]) : 0,
    kvcacheBytes: kv.bytes,
  };
}

function prefill(
  backend: Backend,
  kv: KvState,
  suffix: Int32Array,
  frontier: number,
  options: FrontierOptions,
): Float32Array {
  const chunkTokens = Math.min(options.chunkTokens ?? backend.maxBatchTokens, backend.maxBatchTokens);
  let logits = new Float32Array(0);
  for (let start = 0; start < suffix.length; start += chunkTokens) {
    checkCancelled(options.signal);
    const chunk = suffix.slice(start, start + chunkTokens);
    const isLast = start + chunk.length === suffix.length;
    logits = backend.forward([{ kv, tokens: chunk, logits: isLast ? "last" : "none" }])
      .logits[0] as Float32Array<ArrayBuffer>;
    options.onProgress?.({
      label: `prefill to ${frontier}`,
      done: start + chunk.length,
      total: suffix.length,
      unit: "tokens",
    });
  }
  return logits;
}

/** Index of the largest logit that is not banned; the lowest id wins ties. */
export function greedyToken(logits: Float32Array, banned: readonly number[]): number {
  let best = -1;
  for (let id = 0; id < logits.length; id++) {
    if (banned.includes(id)) continue;
    if (best < 0 || logits[id] > logits[best]) best = id;
  }
  if (best < 0) throw new Ds4Error("session", "every token is banned: nothing can be generated");
  return best;
}

function checkCancelled(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new CancelledError("the benchmark was cancelled");
}
