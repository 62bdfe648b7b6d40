// Prefill and decode speed of our CPU backend beside other engines on the same file, in one run: engines take turns, so
// that a slow spell of the machine hits all of them. Prints medians, and for decode the share of the memory's speed.
// Usage: node scripts/bench-rivals.ts -m FILE [--threads N] [--prompt 512] [--gen 64] [--rounds 3] [--json]
//          [--llama-bench PATH]... [--rival "NAME=COMMAND"]...
// PATH is a llama-bench of any llama.cpp family build. COMMAND is run with FILE THREADS PROMPT GEN appended; the last
// line it prints is {"prefillTps": …, "decodeTps": …}.
import { execFileSync } from "node:child_process";
import { parseArgs } from "node:util";
import { createCpuBackend } from "../src/backend/cpu/cpu-backend.ts";
import { loadNative } from "../src/backend/native.ts";
import { median } from "../src/core/median.ts";
import { textTable } from "../src/core/text-table.ts";
import { GIB } from "../src/core/units.ts";
import { openGguf } from "../src/gguf/open-gguf.ts";

interface Speed {
  prefillTps: number;
  decodeTps: number;
}

interface Engine {
  name: string;
  run(): Speed;
}

const { values } = parseArgs({
  options: {
    model: { type: "string", short: "m" },
    threads: { type: "string", default: String(navigator.hardwareConcurrency) },
    prompt: { type: "string", default: "512" },
    gen: { type: "string", default: "64" },
    rounds: { type: "string", default: "3" },
    "llama-bench": { type: "string", multiple: true, default: [] },
    rival: { type: "string", multiple: true, default: [] },
    json: { type: "boolean", default: false },
  },
});
const { addon, reason } = loadNative();
if (values.model === undefined || addon === null) {
  console.error(addon === null ? `no native addon: ${reason}` : "usage: bench-rivals.ts -m FILE …");
  process.exit(2);
}
const modelPath = values.model;
const [threads, promptTokens, genTokens, rounds] = [
  values.threads,
  values.prompt,
  values.gen,
  values.rounds,
].map(Number);

/** Our own engine: one load, then the same method as llama-bench: an empty context, then one token at a time. */
function ourEngine(): Engine & { weightBytesPerToken: number } {
  const file = openGguf(modelPath);
  const backend = createCpuBackend(file, addon!, { threads, maxBatchTokens: Math.max(512, promptTokens) });
  const { vocabSize } = backend.spec;
  const kv = backend.createKv(Math.min(backend.spec.contextTokens, promptTokens + genTokens));
  const token = (i: number) => (i * 7919 + 11) % vocabSize;
  const timed = (tokens: number, chunk: number): number => {
    kv.reset();
    const started = performance.now();
    for (let at = 0; at < tokens; at += chunk) {
      const ids = Int32Array.from({ length: Math.min(chunk, tokens - at) }, (_, i) => token(at + i));
      backend.forward([{ kv, tokens: ids, logits: chunk === 1 ? "top" : "last" }]);
    }
    return (1000 * tokens) / (performance.now() - started);
  };
  timed(Math.min(64, promptTokens), 64); // first touch
  timed(4, 1);
  return {
    name: `ds4-ts (${backend.description})`,
    weightBytesPerToken: backend.stats().weightBytesPerToken,
    run: () => ({ prefillTps: timed(promptTokens, promptTokens), decodeTps: timed(genTokens, 1) }),
  };
}

function llamaBench(path: string): Engine {
  return {
    name: path.split("/").slice(-4).join("/"),
    run() {
      const args = ["-m", modelPath, "-p", String(promptTokens), "-n", String(genTokens)];
      const output = execFileSync(path, [...args, "-t", String(threads), "-r", "1", "-o", "json"], {
        encoding: "utf8",
        stdio: ["ignore", "pipe", "ignore"],
        maxBuffer: 1 << 26,
      });
      const rows = JSON.parse(output.slice(output.indexOf("["))) as Record<string, number>[];
      const speed = (key: string, other: string) =>
        rows.find((row) => row[key] > 0 && row[other] === 0)?.avg_ts ?? Number.NaN;
      return { prefillTps: speed("n_prompt", "n_gen"), decodeTps: speed("n_gen", "n_prompt") };
    },
  };
}

function commandEngine(flag: string): Engine {
  const [name, command] = flag.split(/=(.*)/s);
  return {
    name,
    run() {
      const full = `${command} ${[modelPath, threads, promptTokens, genTokens].join(" ")}`;
      const output = execFileSync("sh", ["-c", full], {
        encoding: "utf8",
        stdio: ["ignore", "pipe", "ignore"],
      });
      return JSON.parse(output.trim().split("\n").at(-1)!) as Speed;
    },
  };
}

const measure = addon.measureReadBandwidth as (bytes: number, threads: number, rounds: number) => number;
const ours = ourEngine();
const engines: Engine[] = [
  ours,
  ...values["llama-bench"].map(llamaBench),
  ...values.rival.map(commandEngine),
];
const results = new Map<Engine, Speed[]>(engines.map((engine) => [engine, []]));
const bandwidths: number[] = [];
for (let round = 0; round < rounds; round++) {
  bandwidths.push(measure(GIB, threads, 2));
  for (const engine of engines) {
    const speed = engine.run();
    results.get(engine)!.push(speed);
    console.error(
      `round ${round + 1} ${engine.name}: ${speed.prefillTps.toFixed(2)} ${speed.decodeTps.toFixed(2)}`,
    );
  }
}
const bandwidth = Math.max(...bandwidths);
const rows = engines.map((engine) => {
  const speeds = results.get(engine)!;
  const prefillTps = median(speeds.map((each) => each.prefillTps));
  const decodeTps = median(speeds.map((each) => each.decodeTps));
  return {
    name: engine.name,
    prefillTps,
    decodeTps,
    decodeBytesPerSecond: decodeTps * ours.weightBytesPerToken,
  };
});
if (values.json) {
  const { weightBytesPerToken } = ours;
  console.log(
    JSON.stringify({ modelPath, threads, promptTokens, genTokens, weightBytesPerToken, bandwidth, rows }),
  );
} else {
  console.log(`${modelPath}, ${threads} threads, ${rounds} rounds (medians)`);
  console.log(
    `weights read per token ${(ours.weightBytesPerToken / 1e9).toFixed(3)} GB; ` +
      `plain read ${(bandwidth / 1e9).toFixed(1)} GB/s: at most ${(bandwidth / ours.weightBytesPerToken).toFixed(2)} t/s\n`,
  );
  const table = rows.map((row) => [
    row.name,
    row.prefillTps.toFixed(2),
    row.decodeTps.toFixed(2),
    (row.decodeBytesPerSecond / 1e9).toFixed(1),
    `${((100 * row.decodeBytesPerSecond) / bandwidth).toFixed(0)} %`,
  ]);
  const header = [
    "engine",
    `prefill ${promptTokens} t/s`,
    `decode ${genTokens} t/s`,
    "GB/s",
    "of plain read",
  ];
  console.log(textTable("lrrrr", [header, ...table], { isRuled: true }).join("\n"));
}
