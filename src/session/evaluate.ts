// Scores given tokens: negative log-likelihood of each under the model, in batched forward calls with windows
// over texts longer than the context. The basis of perplexity.
import type { Backend } from "../backend/backend.ts";
import { CancelledError, Ds4Error } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import { MIB } from "../core/units.ts";
import { logSumExp } from "./logprobs.ts";
import { argmax } from "./sampler.ts";
import { type CancelSignal, DEFAULT_CHUNK_TOKENS } from "./session.ts";

/** Every scored row needs all its logits at once; this bounds them (126 rows of a 129,280-token vocabulary). */
const LOGITS_BYTES_MAX = 64 * MIB;

/** What to score. Plain data. */
export interface EvaluateRequest {
  tokens: Int32Array;
  /** Tokens per window; each window starts from an empty KV state. */
  windowTokens: number;
  /** Distance between window starts, 1..windowTokens. Default windowTokens (disjoint windows). */
  strideTokens?: number;
  /** First tokens of the text that are context only. Default 1, the least possible. */
  skipTokens?: number;
  chunkTokens?: number;
}

/** Scores of one text; natural logarithms. */
export interface EvaluateResult {
  tokenCount: number;
  scoredCount: number;
  nllSum: number;
  nllMean: number;
  perplexity: number;
  /** Standard error of the perplexity, from the spread of the scores (taken as independent). */
  perplexityError: number;
  /** Share of scored tokens that were the likeliest. */
  argmaxShare: number;
  /** Per scored token, in order of the text. */
  nll: Float32Array;
  /** Tokens evaluated, overlapping windows counted each time. */
  evaluatedTokens: number;
  seconds: number;
}

/** Most tokens whose logits `evaluate` holds at once. */
export function scoredRows(vocabSize: number, chunkTokens = DEFAULT_CHUNK_TOKENS): number {
  return Math.min(chunkTokens, Math.max(1, Math.floor(LOGITS_BYTES_MAX / (4 * vocabSize))));
}

/** Options of `evaluate`. */
export interface EvaluateOptions {
  signal?: CancelSignal;
  onProgress?: ProgressListener;
}

/**
 * Scores every token after the first `skipTokens` once, with as much context as its window holds. The first
 * token of a window has no context, so with disjoint windows it is not scored. Throws `request` on bad
 * numbers or a text too short, `memory`, and `cancelled`.
 */
export function evaluate(
  backend: Backend,
  request: EvaluateRequest,
  options: EvaluateOptions = {},
): EvaluateResult {
  const { tokens } = request;
  const { windowTokens, strideTokens, skipTokens } = checkedWindows(request);
  const vocabSize = backend.spec.vocabSize;
  const chunkTokens = Math.min(scoredRows(vocabSize, request.chunkTokens), backend.maxBatchTokens);
  const scores = new Scores(tokens.length);
  const started = performance.now();
  let evaluatedTokens = 0;
  let scoredUpTo = skipTokens;
  const kv = backend.createKv(Math.min(windowTokens, tokens.length));
  try {
    for (let start = 0; scoredUpTo < tokens.length; start += strideTokens) {
      const end = Math.min(start + windowTokens, tokens.length);
      kv.reset();
      // The last token of a window is only a target, never an input.
      for (let at = start; at < end - 1; ) {
        if (options.signal?.aborted)
          throw new CancelledError(`cancelled after ${scores.count} scored tokens`);
        const chunk = tokens.subarray(at, Math.min(at + chunkTokens, end - 1));
        const needed = at + chunk.length >= scoredUpTo; // else only context: no logits
        const result = backend.forward([{ kv, tokens: chunk, logits: needed ? "all" : "none" }]);
        for (let row = 0; needed && row < chunk.length; row++) {
          const target = at + row + 1;
          if (target < scoredUpTo) continue;
          scores.add(result.logits[0].subarray(row * vocabSize, (row + 1) * vocabSize), tokens[target]);
        }
        at += chunk.length;
        evaluatedTokens += chunk.length;
        options.onProgress?.({ label: "evaluate", done: at + 1, total: tokens.length, unit: "tokens" });
      }
      scoredUpTo = Math.max(scoredUpTo, end);
    }
  } finally {
    kv.close();
  }
  if (scores.count === 0) {
    throw new Ds4Error(
      "request",
      `windows of ${windowTokens} tokens leave none of ${tokens.length} to score`,
    );
  }
  const elapsed = (performance.now() - started) / 1000;
  return { tokenCount: tokens.length, ...scores.result(), evaluatedTokens, seconds: elapsed };
}

function checkedWindows(request: EvaluateRequest) {
  const { tokens, windowTokens } = request;
  const strideTokens = request.strideTokens ?? windowTokens;
  const skipTokens = Math.max(1, request.skipTokens ?? 1);
  if (!Number.isInteger(windowTokens) || windowTokens < 2) {
    throw new Ds4Error("request", `evaluation window: expected at least 2 tokens, got ${windowTokens}`);
  }
  if (!Number.isInteger(strideTokens) || strideTokens < 1 || strideTokens > windowTokens) {
    throw new Ds4Error(
      "request",
      `evaluation stride: expected 1..${windowTokens} tokens, got ${strideTokens}`,
    );
  }
  if (tokens.length <= skipTokens) {
    throw new Ds4Error("request", `evaluation needs more than ${skipTokens} tokens, got ${tokens.length}`);
  }
  return { windowTokens, strideTokens, skipTokens };
}

class Scores {
  count = 0;
  #hits = 0;
  readonly #nll: Float32Array;

  constructor(capacity: number) {
    this.#nll = new Float32Array(capacity);
  }

  add(logits: Float32Array, target: number): void {
    this.#nll[this.count++] = logSumExp(logits) - logits[target];
    if (argmax(logits) === target) this.#hits++;
  }

  result() {
    const nll = this.#nll.slice(0, this.count);
    let nllSum = 0;
    for (const value of nll) nllSum += value;
    const nllMean = nllSum / this.count;
    let squares = 0;
    for (const value of nll) squares += (value - nllMean) ** 2;
    const meanError = this.count > 1 ? Math.sqrt(squares / (this.count - 1) / this.count) : 0;
    const perplexity = Math.exp(nllMean);
    return {
      scoredCount: this.count,
      nllSum,
      nllMean,
      perplexity,
      perplexityError: perplexity * meanError, // first order: d exp(x) = exp(x) dx
      argmaxShare: this.#hits / this.count,
      nll,
    };
  }
}
