// Runs a nano GGUF on a backend and prints how far it is from the reference vectors: one row per prompt, and with
// --trace one per layer. The figures depend on the file: an exact one shows the backend's error, a quantized one the
// quantization's.
// Usage: node scripts/check-nano.ts -m FILE [--backend reference|cpu] [--prompts greet,verse] [--chunk N] [--trace]
import { parseArgs } from "node:util";
import { openBackend } from "../src/cli/open-backend.ts";
import { openGguf } from "../src/gguf/open-gguf.ts";
import { comparePrompt, compareTrace, nanoPrompts } from "../test/golden/nano-vectors.ts";

const { values } = parseArgs({
  options: {
    model: { type: "string", short: "m" },
    backend: { type: "string", default: "reference" },
    threads: { type: "string" },
    prompts: { type: "string" },
    chunk: { type: "string" },
    trace: { type: "boolean", default: false },
  },
});
if (values.model === undefined || (values.backend !== "reference" && values.backend !== "cpu")) {
  console.error(
    "usage: check-nano.ts -m FILE [--backend reference|cpu] [--prompts A,B] [--chunk N] [--trace]",
  );
  process.exit(2);
}

const file = openGguf(values.model);
const threads = values.threads === undefined ? undefined : Number(values.threads);
const { backend } = openBackend(file, { backend: values.backend, threads });
const wanted = values.prompts?.split(",");
const chunkTokens = values.chunk === undefined ? backend.maxBatchTokens : Number(values.chunk);

console.log(`${values.model} on ${backend.name} (${backend.description}), chunks of ${chunkTokens}\n`);
console.log(
  row("prompt", "tokens", "max |Δlogit|", "NLL sum", "expected", "relative", "argmax", "greedy", "seconds"),
);
for (const prompt of nanoPrompts()) {
  if (wanted !== undefined && !wanted.includes(prompt.name)) continue;
  const result = comparePrompt(backend, prompt, chunkTokens);
  console.log(
    row(
      result.name,
      String(result.tokens),
      result.lastLogits.toExponential(2),
      result.nllSum.toFixed(4),
      result.expectedNllSum.toFixed(4),
      result.nllRelative.toExponential(2),
      `${(100 * result.argmaxAgreement).toFixed(2)} %`,
      result.greedyEqual === null ? "-" : result.greedyEqual ? "equal" : "differs",
      result.seconds.toFixed(1),
    ),
  );
}
if (values.trace) {
  const { layers, lastLogits } = compareTrace(backend);
  console.log(
    `\ntrace: max |Δlogit| ${lastLogits.toExponential(2)}; per layer max |Δ| and shares that differ`,
  );
  console.log(row("layer", "attn_out", "moe_out", "streams", "weights", "experts", "indexer"));
  for (const layer of layers) {
    const differences = [layer.attnOut, layer.moeOut, layer.streams, layer.expertWeights];
    const shares = [layer.expertMismatch, layer.indexerMismatch];
    console.log(
      row(
        String(layer.layer),
        ...differences.map((value) => value.toExponential(2)),
        ...shares.map((value) => `${(100 * value).toFixed(2)} %`),
      ),
    );
  }
}
backend.close();
file.close();

function row(...cells: string[]): string {
  return cells.map((cell) => cell.padStart(12)).join(" ");
}
