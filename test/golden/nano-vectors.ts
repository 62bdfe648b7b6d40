// Compares a backend running the nano model with the vectors and the trace that another implementation made
// (float32, exact weights). Measures only; what is good enough is the caller's decision.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Backend } from "../../src/backend/backend.ts";
import { logSumExp } from "../../src/session/logprobs.ts";
import { argmax } from "../../src/session/sampler.ts";
import { readSafetensorsArrays } from "./safetensors-arrays.ts";
import {
  maxDifference,
  type TraceDifference,
  type TraceRecord,
  traceDifferences,
} from "./trace-comparison.ts";

const FOLDER = join(import.meta.dirname, "..", "fixtures", "nano");

/** One prompt of vectors.json, as far as it is used. */
export interface NanoPrompt {
  name: string;
  text: string;
  ids: number[];
  nll_sum: number;
  nll_count: number;
  /** Greedy continuation, end token included; empty for long prompts. */
  greedy: number[];
}

/** What a backend made of one prompt, beside the vectors. */
export interface PromptComparison {
  name: string;
  tokens: number;
  /** Max |difference| of the logits after the last token. */
  lastLogits: number;
  /** Sum of next-token negative log-likelihoods, in nats. */
  nllSum: number;
  expectedNllSum: number;
  /** |ours / theirs - 1|. */
  nllRelative: number;
  /** Share of positions with the same most likely token. */
  argmaxAgreement: number;
  /** Whether the greedy continuation is the same; null where the vectors hold none. */
  greedyEqual: boolean | null;
  seconds: number;
}

/** The prompts of vectors.json, in its order. */
export function nanoPrompts(): NanoPrompt[] {
  return JSON.parse(readFileSync(join(FOLDER, "vectors.json"), "utf8"));
}

/** Runs one prompt, whole or in chunks of `chunkTokens`, and its greedy continuation. */
export function comparePrompt(
  backend: Backend,
  prompt: NanoPrompt,
  chunkTokens = backend.maxBatchTokens,
): PromptComparison {
  const vectors = readSafetensorsArrays(join(FOLDER, "vectors.safetensors"));
  const started = performance.now();
  const { vocabSize } = backend.spec;
  const expectedArgmax = vectors(`${prompt.name}.argmax`);
  const kv = backend.createKv(prompt.ids.length + prompt.greedy.length + 1);
  let nllSum = 0;
  let agreeing = 0;
  let last = new Float32Array(0);
  for (let start = 0; start < prompt.ids.length; start += chunkTokens) {
    const tokens = Int32Array.from(prompt.ids.slice(start, start + chunkTokens));
    const logits = backend.forward([{ kv, tokens, logits: "all" }]).logits[0];
    for (let row = 0; row < tokens.length; row++) {
      last = logits.slice(row * vocabSize, (row + 1) * vocabSize);
      if (argmax(last) === expectedArgmax[start + row]) agreeing++;
      const next = prompt.ids[start + row + 1];
      if (next !== undefined) nllSum += logSumExp(last) - last[next];
    }
  }
  const lastLogits = maxDifference(last, vectors(`${prompt.name}.last_logits`) as Float32Array);
  const greedyEqual = prompt.greedy.length === 0 ? null : followsGreedy(backend, kv, last, prompt.greedy);
  kv.close();
  return {
    name: prompt.name,
    tokens: prompt.ids.length,
    lastLogits,
    nllSum,
    expectedNllSum: prompt.nll_sum,
    nllRelative: Math.abs(nllSum / prompt.nll_sum - 1),
    argmaxAgreement: agreeing / prompt.ids.length,
    greedyEqual,
    seconds: (performance.now() - started) / 1000,
  };
}

/** Runs the traced prompt and compares every recorded intermediate, layer by layer. */
export function compareTrace(backend: Backend): { layers: TraceDifference[]; lastLogits: number } {
  const expected = readSafetensorsArrays(join(FOLDER, "trace.safetensors"));
  const tokens = expected("ids") as Int32Array;
  const records: TraceRecord = new Map();
  const kv = backend.createKv(tokens.length);
  const { logits } = backend.forward([{ kv, tokens, logits: "last" }], {
    trace: (name, layer, data) => records.set(`layer${layer}.${name}`, data.slice()),
  });
  const lastLogits = maxDifference(logits[0], expected("logits_last") as Float32Array);
  kv.close();
  return { layers: traceDifferences(backend.spec, records, expected, tokens.length), lastLogits };
}

function followsGreedy(
  backend: Backend,
  kv: ReturnType<Backend["createKv"]>,
  firstLogits: Float32Array,
  greedy: readonly number[],
): boolean {
  let logits = firstLogits;
  for (const expected of greedy) {
    if (argmax(logits) !== expected) return false;
    logits = backend.forward([{ kv, tokens: Int32Array.of(expected), logits: "last" }]).logits[0];
  }
  return true;
}
