// Whole models on the device: small random ones against the reference backend, the nano model against its vectors.

import type { Backend } from "../../src/backend/backend.ts";
import type { CudaOptions } from "../../src/backend/cuda/cuda-backend.ts";
import { createReferenceBackend } from "../../src/backend/reference/reference-backend.ts";
import { KV_TYPES } from "../../src/core/kv-type.ts";
import { openGguf } from "../../src/gguf/open-gguf.ts";
import { nanoModelPath } from "../fixtures/nano-model.ts";
import { type TinyModelOptions, tinyModel } from "../fixtures/tiny-model.ts";
import { comparePrompt, compareTrace, type NanoPrompt, nanoPrompts } from "../golden/nano-vectors.ts";
import { openChecked } from "./checked-backend.ts";
import { type CheckBench, type CheckRow, type KernelCheck, largestDifference } from "./kernel-check.ts";

/** The nano model to check, exact weights; default: made from models/nano. */
export const MODEL_VARIABLE = "DS4_CUDA_CHECK_MODEL";

const SHAPES: TinyModelOptions[] = [
  {},
  { experts: 6, expertsUsed: 3, weightsScale: 1, seed: 2 },
  { ratios: [128, 4, 0], hashLayers: 0, topK: 3, window: 5, seed: 3 },
  { ratios: [4], hashLayers: 1, experts: 16, expertsUsed: 6, vocab: 128, matrixType: "BF16", seed: 4 },
];
const TOKENS = 140;
/** Of nano's vectors: two halves per value meet the CPU's bound; float16 rows, queries and weights cost 1e-3 to 6e-3. */
const LAST_LOGITS = { f16: 1e-2, f16x2: 2e-3 } as const;
const CHUNKS = [1, 7, 64, TOKENS];

/** Logits after every token, [tokens, vocab]. */
function feed(backend: Backend, tokens: Int32Array, chunkTokens: number): Float32Array {
  const { vocabSize } = backend.spec;
  const logits = new Float32Array(tokens.length * vocabSize);
  const kv = backend.createKv(tokens.length);
  for (let at = 0; at < tokens.length; at += chunkTokens) {
    const range = { kv, tokens: tokens.slice(at, at + chunkTokens), logits: "all" } as const;
    logits.set(backend.forward([range]).logits[0], at * vocabSize);
  }
  kv.close();
  return logits;
}

function checkTiny(bench: CheckBench, options: TinyModelOptions): CheckRow[] {
  const name = `tiny ${JSON.stringify(options)}`;
  const oracle = createReferenceBackend(tinyModel(options));
  const { vocabSize } = oracle.spec;
  const tokens = Int32Array.from({ length: TOKENS }, (_, i) => (i * 7 + (i >> 3)) % vocabSize);
  const expected = feed(oracle, tokens, TOKENS);
  // Float16 rows would let near ties of routers and indexers fall otherwise.
  const backend = openChecked(bench, tinyModel(options), { maxBatchTokens: 300, kvType: "f16x2" });
  try {
    return CHUNKS.map((chunk) => {
      const error = largestDifference(feed(backend, tokens, chunk), expected);
      return { name: `${name}, ${chunk} at a time`, error, bound: 2e-3 };
    });
  } finally {
    backend.close();
    oracle.close();
  }
}

/** Two sequences in one batch, and a state moved through a snapshot, against one sequence alone. */
function checkStates(bench: CheckBench): CheckRow[] {
  const backend = openChecked(bench, tinyModel(), { maxBatchTokens: 300 });
  try {
    const { vocabSize } = backend.spec;
    const tokens = Int32Array.from({ length: 64 }, (_, i) => (i * 5) % vocabSize);
    const alone = feed(backend, tokens, tokens.length).slice(-vocabSize);
    const [a, b, c] = [0, 1, 2].map(() => backend.createKv(80));
    backend.forward([
      { kv: a, tokens: tokens.slice(0, 37), logits: "none" },
      { kv: b, tokens: tokens.slice(0, 50), logits: "none" },
    ]);
    c.restore(b.snapshot());
    const rest = backend.forward([
      { kv: a, tokens: tokens.slice(37), logits: "last" },
      { kv: b, tokens: tokens.slice(50), logits: "last" },
      { kv: c, tokens: tokens.slice(50), logits: "last" },
    ]).logits;
    return ["first of a batch", "second of a batch", "restored"].map((name, i) => {
      return { name: `states: ${name}`, error: largestDifference(rest[i], alone), bound: 2e-3 };
    });
  } finally {
    backend.close();
  }
}

function withNano(
  bench: CheckBench,
  check: (backend: Backend) => CheckRow[],
  options?: CudaOptions,
): CheckRow[] {
  const file = openGguf(process.env[MODEL_VARIABLE] || nanoModelPath());
  try {
    const backend = openChecked(bench, file, options);
    try {
      return check(backend);
    } finally {
      backend.close();
    }
  } finally {
    file.close();
  }
}

function checkPrompt(backend: Backend, prompt: NanoPrompt, lastLogitsBound: number): CheckRow[] {
  const { name, lastLogits, nllRelative, argmaxAgreement, greedyEqual } = comparePrompt(backend, prompt);
  return [
    { name: `${name}: last logits`, error: lastLogits, bound: lastLogitsBound },
    { name: `${name}: likelihood, relative`, error: nllRelative, bound: 1e-3 },
    { name: `${name}: other likeliest tokens`, error: 1 - argmaxAgreement, bound: 0.005 },
    ...(greedyEqual === null
      ? []
      : [{ name: `${name}: greedy text differs`, error: greedyEqual ? 0 : 1, bound: 0 }]),
  ];
}

/** A group for each prompt: under a sanitizer all of them together take ten minutes. */
function promptChecks(): KernelCheck[] {
  return nanoPrompts().flatMap((prompt) =>
    KV_TYPES.map((kvType) => ({
      name: `nano prompts, ${kvType}: ${prompt.name}`,
      run: (bench: CheckBench) =>
        withNano(bench, (backend) => checkPrompt(backend, prompt, LAST_LOGITS[kvType]), { kvType }),
    })),
  );
}

function checkTrace(backend: Backend): CheckRow[] {
  const { layers, lastLogits } = compareTrace(backend);
  const rows = layers.flatMap((layer) => [
    { name: `layer ${layer.layer}: attention`, error: layer.attnOut, bound: 2e-3 },
    { name: `layer ${layer.layer}: experts`, error: layer.moeOut, bound: 2e-3 },
    { name: `layer ${layer.layer}: streams`, error: layer.streams, bound: 2e-3 },
    { name: `layer ${layer.layer}: other experts`, error: layer.expertMismatch, bound: 0.001 },
    { name: `layer ${layer.layer}: expert weights`, error: layer.expertWeights, bound: 1e-4 },
    { name: `layer ${layer.layer}: other entries`, error: layer.indexerMismatch, bound: 0.001 },
  ]);
  return [...rows, { name: "last logits", error: lastLogits, bound: 2e-3 }];
}

/** All checks of whole models. */
export const checks: readonly KernelCheck[] = [
  { name: "tiny models", run: (bench) => SHAPES.flatMap((options) => checkTiny(bench, options)) },
  { name: "tiny states", run: checkStates },
  { name: "nano trace", run: (bench) => withNano(bench, checkTrace, { kvType: "f16x2" }) },
  ...promptChecks(),
];
