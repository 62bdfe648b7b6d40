// What decoding for several conversations at once gains: total speed of 1 to 8 slots in one forward call, and the limit
// that the memory sets: matrices that all tokens share are read once, routed experts once per expert that any token chose.
// Rounds take turns. Usage: node scripts/bench-slots.ts [-m FILE] [--slots 1,2,4,8] [--prompt 64] [--steps 12]
//          [--rounds 5] [--threads N] [--json]
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { resolveModelPath } from "../src/api/open-model.ts";
import type { KvState, TraceSink } from "../src/backend/backend.ts";
import { createCpuBackend } from "../src/backend/cpu/cpu-backend.ts";
import { loadNative } from "../src/backend/native.ts";
import { nativeKernels } from "../src/backend/native-kernels.ts";
import { median } from "../src/core/median.ts";
import { textTable } from "../src/core/text-table.ts";
import { openGguf } from "../src/gguf/open-gguf.ts";
import { bindModel } from "../src/model/weights.ts";
import { weightBytesPerToken } from "../src/plan/token-traffic.ts";
import { planWeights } from "../src/plan/weight-layout.ts";

const { values } = parseArgs({
  options: {
    model: { type: "string", short: "m" },
    slots: { type: "string", default: "1,2,4,8" },
    prompt: { type: "string", default: "64" },
    steps: { type: "string", default: "12" },
    rounds: { type: "string", default: "5" },
    threads: { type: "string", default: String(availableParallelism()) },
    json: { type: "boolean", default: false },
  },
});
const [promptTokens, steps, rounds, threads] = [
  ...[values.prompt, values.steps, values.rounds, values.threads],
].map(Number);
const slotCounts = values.slots.split(",").map(Number);
const most = Math.max(...slotCounts);
const READ_BYTES = 256e6;

const { addon, reason } = loadNative();
if (addon === null) throw new Error(`no native addon: ${reason}`);
const file = openGguf(resolveModelPath(values.model));
const model = bindModel(file);
const { spec } = model;
const backend = createCpuBackend(file, addon, {
  ...{ threads, headRows: most, maxBatchTokens: Math.max(512, promptTokens) },
});
const expertBytes =
  planWeights(model)
    .matrices.filter(({ slices }) => slices > 1)
    .reduce((sum, { tensor }) => sum + tensor.bytes / spec.expertCount, 0) / spec.layers.length;
const sharedBytes = weightBytesPerToken(model) - expertBytes * spec.expertUsedCount * spec.layers.length;
file.close();

const states: KvState[] = [];
const last: number[] = [];
for (let slot = 0; slot < most; slot++) {
  const kv = backend.createKv(promptTokens + 2 * steps * (rounds + 1) * slotCounts.length);
  const tokens = Int32Array.from(
    { length: promptTokens },
    (_, at) => (at * 7919 + slot * 104_729 + 11) % spec.vocabSize,
  );
  last.push(backend.forward([{ kv, tokens, logits: "top" }]).top[0]!.ids[0]);
  states.push(kv);
}

/** One token of the first `count` slots. */
function step(count: number, trace?: TraceSink): void {
  const ranges = states.slice(0, count).map((kv, slot) => {
    return { kv, tokens: Int32Array.of(last[slot]), logits: "top" as const };
  });
  backend.forward(ranges, { trace }).top.forEach((top, slot) => {
    last[slot] = top!.ids[0];
  });
}

/** Weight bytes that one step of `count` slots reads, from the experts that it really chose. */
function stepBytes(count: number): number {
  let experts = 0;
  step(count, (name, _layer, ids) => {
    if (name === "expert_ids") experts += new Set(ids).size;
  });
  return sharedBytes + experts * expertBytes;
}

const times = new Map(slotCounts.map((count): [number, number[]] => [count, []]));
for (let round = -1; round < rounds; round++) {
  for (const count of slotCounts) {
    const started = performance.now();
    for (let at = 0; at < steps; at++) step(count);
    if (round >= 0) times.get(count)!.push((performance.now() - started) / steps);
  }
}
const kernels = nativeKernels(addon) as ReturnType<typeof nativeKernels> & {
  measureReadBandwidth(bytes: number, threads: number, rounds: number): number;
};
const readBytesPerSecond = kernels.measureReadBandwidth(READ_BYTES, threads, 5);
const one = median(times.get(slotCounts[0])!);
const rows = slotCounts.map((slots) => {
  const ms = median(times.get(slots)!);
  const bytes = stepBytes(slots);
  const limitMs = (1000 * bytes) / readBytesPerSecond;
  return {
    ...{ slots, stepMs: ms, bestStepMs: Math.min(...times.get(slots)!), totalTps: (1000 * slots) / ms },
    gain: (slots / ms) * (one / slotCounts[0]),
    ...{ stepBytes: bytes, bytesPerSecond: (1000 * bytes) / ms, limitTps: (1000 * slots) / limitMs },
  };
});
for (const kv of states) kv.close();
backend.close();
if (values.json) console.log(JSON.stringify({ threads, readBytesPerSecond, rows }, null, 2));
else {
  console.log(
    `${kernels.kernelLevelName()}, ${threads} threads, plain read ${(readBytesPerSecond / 1e9).toFixed(1)} GB/s`,
  );
  const header = ["slots", "step ms", "best ms", "total t/s", "gain", "GB a step", "GB/s", "limit t/s"];
  const cells = rows.map((row) => [
    ...[
      String(row.slots),
      row.stepMs.toFixed(1),
      row.bestStepMs.toFixed(1),
      row.totalTps.toFixed(1),
      row.gain.toFixed(2),
    ],
    ...[row.stepBytes / 1e9, row.bytesPerSecond / 1e9].map((value) => value.toFixed(2)),
    row.limitTps.toFixed(0),
  ]);
  console.log(textTable("r".repeat(header.length), [header, ...cells], { isRuled: true }).join("\n"));
}
