// Fuzzes the GGUF reader and what builds on it, in a worker: the main thread notices a case that never ends.
// Usage: node scripts/fuzz-gguf.ts [--count 10000] [--seed 1] [--start 0]     (--start N --count 1 repeats case N)
import { parseArgs } from "node:util";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { formatBytes } from "../src/core/units.ts";
import { type FuzzSummary, fuzzGguf } from "../test/fuzz/gguf-fuzz.ts";

/** Without a sign of life for this long, the current case hangs. */
const HANG_MS = 30_000;
const EXIT_HANG = 3;

if (isMainThread) main();
else work();

function main(): void {
  const { values } = parseArgs({
    options: {
      count: { type: "string", default: "10000" },
      seed: { type: "string", default: "1" },
      start: { type: "string", default: "0" },
    },
  });
  const [count, seed, start] = [values.count, values.seed, values.start].map(Number);
  if (![count, seed, start].every((value) => Number.isSafeInteger(value) && value >= 0)) {
    console.error("usage: fuzz-gguf.ts [--count N] [--seed N] [--start N]: whole numbers from 0");
    process.exit(2);
  }
  const current = new Int32Array(new SharedArrayBuffer(4)).fill(-1);
  const startMs = performance.now();
  const worker = new Worker(new URL(import.meta.url), { workerData: { count, seed, start, current } });
  let seen = -1;
  const watchdog = setInterval(() => {
    const index = Atomics.load(current, 0);
    if (index === seen) {
      console.error(`case ${index} of seed ${seed} hangs`);
      process.exit(EXIT_HANG);
    }
    seen = index;
  }, HANG_MS);
  worker.on("message", (summary: FuzzSummary) => {
    clearInterval(watchdog);
    report(summary, seed, performance.now() - startMs);
  });
  worker.on("error", (error) => {
    console.error(`case ${Atomics.load(current, 0)} of seed ${seed} ended the worker: ${error}`);
    process.exit(1);
  });
}

function work(): void {
  setFlagsFromString("--expose-gc");
  const collectGarbage = runInNewContext("gc") as () => void;
  const { current, ...options } = workerData;
  const onCase = (index: number) => Atomics.store(current, 0, index);
  parentPort!.postMessage(fuzzGguf({ ...options, collectGarbage, onCase }));
}

function report(summary: FuzzSummary, seed: number, elapsedMs: number): void {
  const { failures, ...rest } = summary;
  console.log(`seed ${seed}: ${summary.cases} cases in ${(elapsedMs / 1000).toFixed(1)} s`);
  console.log(JSON.stringify(rest, null, 2));
  console.log(
    `slowest ${summary.slowestMs.toFixed(1)} ms, largest growth ${formatBytes(summary.largestGrowthBytes)}, ` +
      `peak of the process ${formatBytes(process.resourceUsage().maxRSS * 1024)}`,
  );
  console.log(`${failures.length} failures`);
  for (const { index, route, problem } of failures.slice(0, 20)) {
    console.log(
      `\ncase ${index} (${route}): ${problem}\n  node scripts/fuzz-gguf.ts --seed ${seed} --start ${index} --count 1`,
    );
  }
  process.exitCode = failures.length === 0 ? 0 : 1;
}
