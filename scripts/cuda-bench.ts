// Measures this machine's GPU: every kernel in GB/s and TFLOP/s and as shares of the device's copy and of its tensor cores,
// measured in the same run; then, with a model, prefill and decode over the context (`ds4 bench`).
// Usage: npm run cuda:bench -- [-m FILE | --synth RECIPE [--layers N] [--folder /dev/shm]] [--only matrices|sequences|model]
//        [--ctx-max 8192] [--kv-type f16|f16x2] [--json] [--csv FILE] [--svg FILE] [--report FILE]
// --csv: the kernels' table goes to FILE, the model's sweep to FILE with "-model" before the ending. --svg draws the sweep.
// Needs what cuda:check needs, and with a model what `ds4 bench` needs.
import { readFileSync, writeFileSync } from "node:fs";
import { extname, join } from "node:path";
import { parseArgs } from "node:util";
import { DeviceMemory } from "../src/backend/cuda/device-memory.ts";
import { loadCudaDriver } from "../src/backend/cuda/load-driver.ts";
import { type OpenDevice, openDevice } from "../src/backend/cuda/open-device.ts";
import { loadNative } from "../src/backend/native.ts";
import { nativeKernels } from "../src/backend/native-kernels.ts";
import { formatBytes } from "../src/core/units.ts";
import { CheckBench } from "../test/cuda/kernel-check.ts";
import { measureMatrices } from "../test/cuda/matrix.bench.ts";
import { type BenchRow, benchCsv, benchTable, Meter } from "../test/cuda/meter.ts";
import { measureSequences } from "../test/cuda/sequence.bench.ts";
import { driverVersion, ds4, MODEL_OPTIONS, withModelFile } from "./model-file.ts";

const AREAS = { matrices: measureMatrices, sequences: measureSequences };

const { values } = parseArgs({
  options: {
    ...MODEL_OPTIONS,
    only: { type: "string" },
    "ctx-max": { type: "string", default: "8192" },
    "kv-type": { type: "string", default: "f16" },
    device: { type: "string", default: "0" },
    json: { type: "boolean" },
    csv: { type: "string" },
    svg: { type: "string" },
    /** Markdown for bench-results. */
    report: { type: "string" },
  },
});

/** What the figures belong to. */
interface Facts {
  date: string;
  device: string;
  computeCapability: number;
  multiprocessors: number;
  memory: string;
  driver: string;
  node: string;
}

function wants(area: string): boolean {
  return values.only === undefined || values.only === area;
}

function factsOf({ device, driver }: OpenDevice): Facts {
  return {
    date: new Date().toISOString(),
    device: device.name,
    computeCapability: device.computeCapability / 10,
    multiprocessors: device.multiprocessors,
    memory: `${formatBytes(driver.memoryInfo().totalBytes)} ${device.integrated ? "unified" : "own"}`,
    driver: driverVersion(driver.version),
    node: process.versions.node,
  };
}

function measureKernels(device: OpenDevice): BenchRow[] {
  const { addon, reason } = loadNative();
  if (addon === null) throw new Error(`the native addon does not load: ${reason}`);
  const kernels = nativeKernels(addon);
  const workspace = new kernels.Workspace(4);
  const memory = new DeviceMemory(device.driver);
  const peaks = new DeviceMemory(device.driver);
  try {
    const meter = new Meter(new CheckBench(device, kernels, workspace, memory), peaks);
    const areas = Object.entries(AREAS).filter(([name]) => wants(name));
    const rows = areas.flatMap(([name, measure]) => {
      if (!values.json) console.error(`measuring ${name}`);
      return measure(meter, () => memory.close());
    });
    return [...meter.peaks, ...rows];
  } finally {
    for (const each of [memory, peaks, workspace]) each.close();
  }
}

function beside(path: string): string {
  const end = extname(path);
  return `${path.slice(0, path.length - end.length)}-model${end}`;
}

/** The sweep's CSV; null without a model. */
function measureModel(): string | null {
  if (!wants("model")) return null;
  const { model, synth, csv, svg } = values;
  if (model === undefined && synth === undefined) {
    if (values.only === "model") throw new Error("--only model: give a file (-m) or a recipe (--synth)");
    return null;
  }
  return withModelFile(values, (path, work) => {
    const table = csv === undefined ? join(work, "sweep.csv") : beside(csv);
    const sweep = ["--ctx-start", "2048", "--ctx-max", values["ctx-max"], "--step-mul", "4"];
    const kind = ["--backend", "cuda", "--kv-type", values["kv-type"]];
    const prompt = model === undefined ? ["--random-prompt"] : [];
    const drawn = svg === undefined ? [] : ["--svg", svg];
    ds4(["bench", "-m", path, ...kind, ...sweep, ...prompt, "--csv", table, ...drawn]);
    return readFileSync(table, "utf8");
  });
}

function reportText(facts: Facts, kernels: readonly BenchRow[], sweep: string | null): string {
  const { date, device, computeCapability, multiprocessors, memory, driver, node } = facts;
  const lines = [
    `# CUDA kernels on ${device}`,
    "",
    `${date.slice(0, 10)}. ${device}, compute capability ${computeCapability}, ${multiprocessors} multiprocessors, ` +
      `${memory}; driver ${driver}; node ${node}. Made by \`npm run cuda:bench\`.`,
  ];
  if (kernels.length > 0) lines.push("", "```", benchTable(kernels), "```");
  if (sweep !== null) lines.push("", "`ds4 bench` of the model:", "", "```", sweep.trimEnd(), "```");
  return `${lines.join("\n")}\n`;
}

function main(): void {
  const load = loadCudaDriver();
  if (load.driver === null) {
    throw new Error(`cuda:bench needs an NVIDIA GPU and its driver; there is no CUDA device: ${load.reason}`);
  }
  const needsKernels = Object.keys(AREAS).some(wants);
  if (!needsKernels && !wants("model")) throw new Error(`--only "${values.only}" is no area`);
  const device = openDevice({ driver: load.driver, device: Number(values.device) });
  let facts: Facts;
  let kernels: BenchRow[];
  try {
    facts = factsOf(device);
    kernels = needsKernels ? measureKernels(device) : [];
  } finally {
    // The model's process needs the memory.
    device.close();
  }
  if (values.csv !== undefined && kernels.length > 0) writeFileSync(values.csv, benchCsv(kernels));
  const sweep = measureModel();
  if (values.report !== undefined) writeFileSync(values.report, reportText(facts, kernels, sweep));
  console.log(
    values.json ? JSON.stringify({ facts, kernels, sweep }, null, 2) : reportText(facts, kernels, sweep),
  );
}

try {
  main();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
