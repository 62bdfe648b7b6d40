// Fuzzes the parser of answers: random blocks, valid and damaged, streamed in random cuts against whole.
// Usage: node scripts/fuzz-dsml.ts [--count 1000000] [--seed 1] [--start 0]     (--start N --count 1 repeats case N)
import { parseArgs } from "node:util";
import { fuzzDsml } from "../test/fuzz/dsml-fuzz.ts";

/** Cases between two lines of progress. */
const BATCH = 100_000;
/** Failures after which a run stops. */
const MAX_FAILURES = 20;

const { values } = parseArgs({
  options: {
    count: { type: "string", default: "1000000" },
    seed: { type: "string", default: "1" },
    start: { type: "string", default: "0" },
  },
});
const [count, seed, start] = [values.count, values.seed, values.start].map(Number);
if (![count, seed, start].every((value) => Number.isSafeInteger(value) && value >= 0)) {
  console.error("usage: fuzz-dsml.ts [--count N] [--seed N] [--start N]: whole numbers from 0");
  process.exit(2);
}
const startMs = performance.now();
const withEvents: Record<string, number> = {};
let failureCount = 0;
let done = 0;
while (done < count && failureCount < MAX_FAILURES) {
  const batch = Math.min(BATCH, count - done);
  const summary = fuzzDsml({ count: batch, seed, start: start + done });
  done += batch;
  for (const [type, cases] of Object.entries(summary.withEvents))
    withEvents[type] = (withEvents[type] ?? 0) + cases;
  for (const { index, problem } of summary.failures.slice(0, MAX_FAILURES - failureCount))
    console.log(
      `case ${index}: ${problem}\n  node scripts/fuzz-dsml.ts --seed ${seed} --start ${index} --count 1`,
    );
  failureCount += summary.failures.length;
  console.log(
    `${done} cases, ${((performance.now() - startMs) / 1000).toFixed(1)} s, ${failureCount} failures`,
  );
}
console.log(`cases with each kind of event: ${JSON.stringify(withEvents)}`);
process.exitCode = failureCount === 0 ? 0 : 1;
