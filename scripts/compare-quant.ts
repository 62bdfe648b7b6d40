// What quantization costs: runs the nano prompts on an exact file and on quantized ones and prints a markdown table.
// KL is the mean over positions of KL(exact || quantized), in nats; argmax is the share of positions with the same
// most likely token; Δ NLL is the mean difference to the first file with its standard error over positions.
// Usage: node scripts/compare-quant.ts EXACT QUANT... [--backend reference|cpu] [--prompts verse,long]
import { basename } from "node:path";
import { parseArgs } from "node:util";
import type { Backend, KvState } from "../src/backend/backend.ts";
import { openBackend } from "../src/cli/open-backend.ts";
import { formatBytes } from "../src/core/units.ts";
import { openGguf } from "../src/gguf/open-gguf.ts";
import { logSumExp } from "../src/session/logprobs.ts";
import { argmax } from "../src/session/sampler.ts";
import { type NanoPrompt, nanoPrompts } from "../test/golden/nano-vectors.ts";

/** Rows of logits held at once, for each file. */
const CHUNK_TOKENS = 256;

interface Model {
  name: string;
  bytes: number;
  backend: Backend;
  nllSum: number;
  nllCount: number;
  /** Sums of the difference to the first file's NLL per position, and of its square. */
  deltaSum: number;
  deltaSquares: number;
  klSum: number;
  agreeing: number;
  positions: number;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    backend: { type: "string", default: "reference" },
    threads: { type: "string" },
    prompts: { type: "string" },
  },
});
if (positionals.length < 1 || (values.backend !== "reference" && values.backend !== "cpu")) {
  console.error("usage: compare-quant.ts EXACT QUANT... [--backend reference|cpu] [--prompts A,B]");
  process.exit(2);
}

const choice = values.backend;
const threads = values.threads === undefined ? undefined : Number(values.threads);
const models = positionals.map(openModel);
const wanted = values.prompts?.split(",");
for (const prompt of nanoPrompts()) {
  if (wanted === undefined || wanted.includes(prompt.name)) scorePrompt(prompt);
}
printTable();

function openModel(path: string): Model {
  const file = openGguf(path);
  const { backend } = openBackend(file, { backend: choice, threads });
  const counters = {
    nllSum: 0,
    nllCount: 0,
    deltaSum: 0,
    deltaSquares: 0,
    klSum: 0,
    agreeing: 0,
    positions: 0,
  };
  return { name: basename(path), bytes: file.sizeBytes, backend, ...counters };
}

function scorePrompt(prompt: NanoPrompt): void {
  const states = models.map((model) => model.backend.createKv(prompt.ids.length));
  const chunkTokens = Math.min(CHUNK_TOKENS, ...models.map((model) => model.backend.maxBatchTokens));
  for (let start = 0; start < prompt.ids.length; start += chunkTokens) {
    const tokens = Int32Array.from(prompt.ids.slice(start, start + chunkTokens));
    const targets = prompt.ids.slice(start + 1, start + 1 + tokens.length);
    const exact = allLogits(models[0], states[0], tokens);
    models.forEach((model, index) => {
      const logits = index === 0 ? exact : allLogits(model, states[index], tokens);
      for (let row = 0; row < tokens.length; row++) scoreRow(model, exact[row], logits[row], targets[row]);
    });
  }
  for (const kv of states) kv.close();
}

function allLogits(model: Model, kv: KvState, tokens: Int32Array): Float32Array[] {
  const rows = model.backend.forward([{ kv, tokens, logits: "all" }]).logits[0].slice();
  const { vocabSize } = model.backend.spec;
  return Array.from(tokens, (_, row) => rows.subarray(row * vocabSize, (row + 1) * vocabSize));
}

function scoreRow(model: Model, exact: Float32Array, logits: Float32Array, target: number | undefined): void {
  const norm = logSumExp(logits);
  const exactNorm = logSumExp(exact);
  for (let token = 0; token < logits.length; token++) {
    const exactLog = exact[token] - exactNorm;
    model.klSum += Math.exp(exactLog) * (exactLog - (logits[token] - norm));
  }
  if (argmax(logits) === argmax(exact)) model.agreeing++;
  model.positions++;
  if (target === undefined) return; // the last token predicts nothing we know
  model.nllSum += norm - logits[target];
  model.nllCount++;
  const delta = norm - logits[target] - (exactNorm - exact[target]);
  model.deltaSum += delta;
  model.deltaSquares += delta * delta;
}

/** Mean difference of NLL to the first file with its standard error over positions. */
function deltaText({ deltaSum, deltaSquares, nllCount }: Model): string {
  const mean = deltaSum / nllCount;
  const error = Math.sqrt((deltaSquares / nllCount - mean * mean) / nllCount);
  return `${mean.toFixed(4)} ± ${error.toFixed(4)}`;
}

function printTable(): void {
  console.log("| file | size | mean NLL | Δ NLL | perplexity | mean KL | argmax agreement |");
  console.log("| ---- | ---- | -------- | ----- | ---------- | ------- | ---------------- |");
  for (const model of models) {
    const nll = model.nllSum / model.nllCount;
    const cells = [
      model.name,
      formatBytes(model.bytes),
      nll.toFixed(4),
      deltaText(model),
      Math.exp(nll).toFixed(4),
      (model.klSum / model.positions).toFixed(5),
      `${((100 * model.agreeing) / model.positions).toFixed(2)} %`,
    ];
    console.log(`| ${cells.join(" | ")} |`);
  }
  console.log(`\n${models[0].positions} positions, ${models[0].nllCount} scored; backend ${choice}`);
}
