// True times of the kernels inside a replayed decode step: CUPTI's time stamps of every kernel while a model decodes, as
// what each place of a layer costs a token. A profiler that replays kernels one by one shows none of their overlap.
// Usage: npm run cuda:trace -- -m FILE | --synth RECIPE [--layers N] [--folder /dev/shm]
//        [--ctx 2048] [--tokens 24] [--kv-type f16|f16x2] [--device 0] [--once] [--toolkit DIR]
//        [--json] [--csv FILE] [--report FILE.md] [--trace FILE]
//        npm run cuda:trace -- --from FILE
// --once: no second run without tracing, which tells what tracing costs. --csv: the table; --trace: the kernels themselves,
// which --from reads again, on any machine. Needs what `ds4 --cuda` needs, CUPTI with its headers (of the CUDA toolkit that
// fits the driver), and a C++ compiler.
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import { gunzipSync } from "node:zlib";
import { Ds4Error, UsageError } from "../src/core/errors.ts";
import { KV_TYPES, type KvType } from "../src/core/kv-type.ts";
import { median } from "../src/core/median.ts";
import { fits, traceSections } from "../test/cuda/trace/layers.ts";
import { type KernelTrace, parseTrace } from "../test/cuda/trace/records.ts";
import { stepTimes } from "../test/cuda/trace/steps.ts";
import { compileForCupti, findCupti, traceEnvironment } from "../test/cuda/trace/trace-library.ts";
import { type TraceFacts, type TraceReport, traceCsv, traceText } from "../test/cuda/trace/trace-report.ts";
import type { DecodeOutcome, DecodeRun } from "../test/cuda/trace/traced-decode.ts";
import { driverVersion, MODEL_OPTIONS, withModelFile } from "./model-file.ts";

const TRACED = join(import.meta.dirname, "..", "test", "cuda", "trace", "traced-decode.ts");
const LEAST_TOKENS = 4;
const MOST_TOKENS = 1000;

const { values } = parseArgs({
  options: {
    ...MODEL_OPTIONS,
    ctx: { type: "string", default: "2048" },
    tokens: { type: "string", default: "24" },
    "kv-type": { type: "string", default: "f16" },
    device: { type: "string", default: "0" },
    once: { type: "boolean" },
    toolkit: { type: "string" },
    json: { type: "boolean" },
    csv: { type: "string" },
    report: { type: "string" },
    trace: { type: "string" },
    from: { type: "string" },
  },
});

function whole(flag: "ctx" | "tokens" | "device", least: number, most: number): number {
  const value = Number(values[flag]);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new UsageError(`--${flag}: expected ${least}..${most}, got "${values[flag]}"`);
}

function kvType(): KvType {
  const found = KV_TYPES.find((each) => each === values["kv-type"]);
  if (found !== undefined) return found;
  throw new UsageError(`--kv-type: expected ${KV_TYPES.join(" or ")}, got "${values["kv-type"]}"`);
}

/** Decodes in a process of its own, with `environment` besides this one's. Its messages are seen. */
function decode(run: DecodeRun, environment: Record<string, string>): DecodeOutcome {
  const child = spawnSync(process.execPath, [TRACED, JSON.stringify(run)], {
    env: { ...process.env, ...environment },
    stdio: ["ignore", "ignore", "inherit"],
  });
  if (child.status !== 0) {
    throw new Ds4Error("cuda", `the process that decodes ended with ${child.status ?? child.signal}`);
  }
  return JSON.parse(readFileSync(run.out, "utf8"));
}

/** Traces a model; a second run gives the time without. */
function traceModel(): TraceReport {
  // What is wrong with flags or toolkit should not cost a load.
  const run = {
    ...{ ctxTokens: whole("ctx", 1, 2 ** 24), tokens: whole("tokens", LEAST_TOKENS, MOST_TOKENS) },
    ...{ kvType: kvType(), device: whole("device", 0, 1023) },
  };
  const cupti = findCupti(values.toolkit);
  return withModelFile(values, (model, work) => {
    const [library, csv, out] = ["kernel-trace.so", "trace.csv", "outcome.json"].map((name) =>
      join(work, name),
    );
    compileForCupti("kernel-trace.cpp", cupti, library);
    const all = { ...run, model, out };
    if (!values.json) console.error("decoding, kernels traced");
    const traced = decode(all, traceEnvironment(library, cupti, csv, run.tokens));
    if (values.trace !== undefined) copyFileSync(csv, values.trace);
    const trace = parseTrace(readFileSync(csv, "utf8"), csv);
    if (!values.json && !values.once) console.error("decoding once more, without tracing");
    const plain = values.once ? null : decode(all, {});
    const facts: TraceFacts = {
      date: new Date().toISOString(),
      device: traced.description,
      driver: `driver ${driverVersion(traced.driverVersion)}`,
      model: values.model === undefined ? `random weights of recipe ${values.synth}` : basename(model),
      ...{ ctxTokens: run.ctxTokens, kvType: run.kvType },
      ...{ tracedMs: median(traced.stepsMs), plainMs: plain && median(plain.stepsMs), notes: [] },
    };
    return reportOf(trace, facts, traced);
  });
}

/** Reads a trace that an earlier run kept. */
function readTrace(path: string): TraceReport {
  if (!existsSync(path)) throw new UsageError(`--from ${path}: no such file`);
  const bytes = readFileSync(path);
  const text = (path.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString();
  const unknown = { device: "", driver: "", ctxTokens: null, kvType: "", tracedMs: null, plainMs: null };
  const facts = { ...unknown, date: new Date().toISOString(), model: basename(path), notes: [] };
  return reportOf(parseTrace(text, path), facts, null);
}

function reportOf(trace: KernelTrace, facts: TraceFacts, outcome: DecodeOutcome | null): TraceReport {
  const { places, ...times } = stepTimes(trace.runs);
  const launches = outcome?.launches ?? null;
  const sections = traceSections({ ...times, places }, launches, outcome?.layerCount);
  const notes: string[] = [];
  if (trace.lost > 0)
    notes.push(`CUPTI lost ${trace.lost} kernels; where they fell out of decode, steps are missing`);
  if (times.isReplayed === false) {
    notes.push(
      "the driver did not record the steps: kernels were launched one by one, the gaps are the host's",
    );
  }
  if (launches !== null && !fits(places, launches)) {
    notes.push(
      `a step launched ${launches.length} kernels, the trace repeats after ${places.length} others: weights are left out`,
    );
  }
  const layers = sections.reduce((sum, section) => sum + section.layers.length, 0);
  if (outcome !== null && layers !== outcome.layerCount) {
    notes.push(`${outcome.layerCount} layers were expected, ${layers} can be told apart`);
  }
  return { facts: { ...facts, notes }, times, sections };
}

function main(): void {
  const report = values.from === undefined ? traceModel() : readTrace(values.from);
  if (values.csv !== undefined) writeFileSync(values.csv, traceCsv(report.sections));
  if (values.report !== undefined) writeFileSync(values.report, traceText(report));
  console.log(values.json ? JSON.stringify(report, null, 2) : traceText(report));
}

try {
  main();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
