// Checks the CUDA backend on this machine's GPU: every kernel against the CPU's kernels on random inputs, small models
// against the reference backend, the nano model against its vectors. `npm run cuda:check [-- --only TEXT --model FILE]`.
// With --sanitizer memcheck|racecheck every group runs under compute-sanitizer (of the CUDA toolkit), and what that finds counts as a
// comparison.
// With --emulate (`npm run cuda:emulate`) the kernels run on the processor, as test/cuda/emulation builds them: slowly, so
// name a group with --only.
//
// Needs node, build/Release/ds4.node, build/cuda/ds4.fatbin, and of node_modules only koffi, @koromix and node-gyp-build.
// Each group runs in a process of its own, so that a kernel that takes the device down takes only its group along.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { DeviceMemory } from "../src/backend/cuda/device-memory.ts";
import { readKernelImage } from "../src/backend/cuda/kernel-image.ts";
import { loadCudaDriver, openCudaDriver } from "../src/backend/cuda/load-driver.ts";
import { type DeviceOptions, type OpenDevice, openDevice } from "../src/backend/cuda/open-device.ts";
import { loadNative } from "../src/backend/native.ts";
import { nativeKernels } from "../src/backend/native-kernels.ts";
import { formatBytes } from "../src/core/units.ts";
import { CheckBench, type CheckRow, type KernelCheck } from "../test/cuda/kernel-check.ts";
import { MODEL_VARIABLE } from "../test/cuda/model.check.ts";
import { findings, sanitizerCommand } from "./compute-sanitizer.ts";
import { buildCudaEmulation } from "./cuda-emulation.ts";

const CHECKS = join(import.meta.dirname, "..", "test", "cuda");
const GROUP_TIMEOUT_MS = 300_000;
/** Emulated, or under a sanitizer. */
const SLOW_GROUP_TIMEOUT_MS = 3_600_000;
/** Before the JSON that a group's process prints. */
const RESULT_MARK = "@rows ";

const { values } = parseArgs({
  options: {
    /** Groups whose name contains this. */
    only: { type: "string" },
    /** Nano model with exact weights. */
    model: { type: "string" },
    device: { type: "string", default: "0" },
    /** A tool of compute-sanitizer. */
    sanitizer: { type: "string" },
    /** Without a GPU. */
    emulate: { type: "boolean", default: false },
    /** Every comparison, not only groups and failures. */
    verbose: { type: "boolean" },
    json: { type: "boolean" },
    /** Internal: run this one group here and print its rows. */
    group: { type: "string" },
  },
});

/** A group's outcome; `failure` when it did not come to an end. */
interface GroupResult {
  name: string;
  rows: CheckRow[];
  failure?: string;
  seconds: number;
}

const probe: KernelCheck = {
  name: "device",
  run(bench) {
    const out = bench.room(4 * 101);
    const args = [{ p: out }, { i32: 100 }, { i32: 7 }];
    bench.ctx.module.launch(bench.ctx.stream, "probeDevice", [1, 1, 1], [128, 1, 1], 0, args);
    const found = bench.ints(out, 101);
    const wrong = found.subarray(1).reduce((sum, value, i) => sum + (value === i + 7 ? 0 : 1), 0);
    return [{ name: `code for sm_${found[0] / 10} runs`, error: wrong, bound: 0 }];
  },
};

/** All groups: one file per area exports `checks`. */
async function findChecks(): Promise<KernelCheck[]> {
  const files = readdirSync(CHECKS).filter((name) => name.endsWith(".check.ts"));
  const modules = await Promise.all(files.sort().map((name) => import(join(CHECKS, name))));
  const wholeModels = (check: KernelCheck) => (/^(tiny|nano)/.test(check.name) ? 1 : 0);
  const found = modules.flatMap((module) => module.checks as readonly KernelCheck[]);
  const sorted = found.sort((a, b) => wholeModels(a) - wholeModels(b));
  return values.emulate ? sorted : [probe, ...sorted];
}

/** The device that is checked. Throws an Error where there is none. */
async function deviceOptions(onProgress?: (line: string) => void): Promise<Required<DeviceOptions>> {
  const emulation = values.emulate ? await buildCudaEmulation(onProgress) : undefined;
  const load = emulation === undefined ? loadCudaDriver() : openCudaDriver(emulation.libraryPath);
  if (load.driver === null) throw new Error(`no CUDA device: ${load.reason}`);
  const kernelImage = emulation?.kernelImage ?? readKernelImage();
  return { driver: load.driver, device: Number(values.device), kernelImage };
}

async function runHere(check: KernelCheck): Promise<CheckRow[]> {
  const { addon, reason } = loadNative();
  if (addon === null) throw new Error(`the native addon does not load: ${reason}`);
  const options = await deviceOptions();
  const device = openDevice(options);
  const kernels = nativeKernels(addon);
  const workspace = new kernels.Workspace(4);
  const bench = new CheckBench(device, kernels, workspace, new DeviceMemory(device.driver), options);
  const rows = await check.run(bench);
  bench.close();
  workspace.close();
  device.close();
  return rows;
}

/** `before`: what comes before the command line of the group's process. */
function runApart(name: string, before: readonly string[]): GroupResult {
  const started = performance.now();
  const { sanitizer } = values;
  const [program, ...args] = [
    ...before,
    process.execPath,
    import.meta.filename,
    "--group",
    name,
    "--device",
    values.device,
    ...(values.emulate ? ["--emulate"] : []),
    ...(sanitizer === undefined ? [] : ["--sanitizer", sanitizer]),
  ];
  const child = spawnSync(program, args, {
    encoding: "utf8",
    timeout: values.emulate || sanitizer !== undefined ? SLOW_GROUP_TIMEOUT_MS : GROUP_TIMEOUT_MS,
    maxBuffer: 2 ** 28,
    env: { ...process.env, [MODEL_VARIABLE]: values.model ?? "" },
  });
  const seconds = (performance.now() - started) / 1000;
  const line = child.stdout.split("\n").find((each) => each.startsWith(RESULT_MARK));
  if (child.status === 0 && line !== undefined) {
    const rows: CheckRow[] = JSON.parse(line.slice(RESULT_MARK.length));
    if (sanitizer !== undefined) {
      rows.push({
        name: `${sanitizer} finds nothing`,
        error: findings(child.stdout) ?? Number.NaN,
        bound: 0,
      });
    }
    return { name, rows, seconds };
  }
  const ended = child.signal === null ? `exit code ${child.status}` : `signal ${child.signal}`;
  const text = child.stderr.trim().split("\n").slice(-12).join("\n");
  return { name, rows: [], failure: text === "" ? ended : text, seconds };
}

/** `null` errors are numbers that JSON cannot hold. */
function holds({ error, bound }: CheckRow): boolean {
  return error !== null && error <= bound;
}

function report({ name, rows, failure, seconds }: GroupResult): void {
  const failed = rows.filter((row) => !holds(row));
  const ok = failure === undefined && rows.length > 0 && failed.length === 0;
  const worst = rows.reduce(
    (most, { error, bound }) => Math.max(most, bound === 0 ? error : error / bound),
    0,
  );
  const share = Number.isFinite(worst)
    ? `worst ${(100 * worst).toFixed(1)} % of its bound`
    : "worst not finite";
  const facts = failure === undefined ? `${rows.length} comparisons, ${share}` : "did not finish";
  console.log(`${ok ? "ok  " : "FAIL"} ${name.padEnd(28)} ${facts}, ${seconds.toFixed(1)} s`);
  for (const row of values.verbose ? rows : failed) {
    const error = row.error === null ? "not a number" : row.error.toExponential(2);
    console.log(
      `       ${holds(row) ? "ok  " : "FAIL"} ${row.name}: ${error}, at most ${row.bound.toExponential(0)}`,
    );
  }
  if (failure !== undefined) console.log(failure.replace(/^/gm, "       "));
}

async function describeDevice(): Promise<void> {
  const options = await deviceOptions(console.log);
  const { driver } = options;
  let device: OpenDevice | undefined;
  try {
    device = openDevice(options);
    const { name, computeCapability, multiprocessors, integrated } = device.device;
    const { freeBytes, totalBytes } = driver.memoryInfo();
    console.log(
      `${name}: compute capability ${(computeCapability / 10).toFixed(1)}, ${multiprocessors} multiprocessors, ` +
        `${integrated ? "unified memory" : "own memory"}, ${formatBytes(freeBytes)} of ${formatBytes(totalBytes)} free; ` +
        `driver for CUDA ${driver.version / 1000}, node ${process.versions.node}`,
    );
  } finally {
    device?.close();
  }
}

async function main(): Promise<void> {
  const checks = await findChecks();
  if (values.group !== undefined) {
    const check = checks.find(({ name }) => name === values.group);
    if (check === undefined) throw new Error(`there is no group "${values.group}"`);
    console.log(RESULT_MARK + JSON.stringify(await runHere(check)));
    return;
  }
  const before = values.sanitizer === undefined ? [] : sanitizerCommand(values.sanitizer);
  await describeDevice();
  const chosen = checks.filter(({ name }) => name.includes(values.only ?? ""));
  if (chosen.length === 0) throw new Error(`--only "${values.only}" matches no group`);
  const results: GroupResult[] = [];
  for (const { name } of chosen) {
    results.push(runApart(name, before));
    report(results[results.length - 1]);
  }
  const rows = results.flatMap((result) => result.rows);
  const failed = rows.filter((row) => !holds(row)).length;
  const unfinished = results.filter(
    ({ rows: own, failure }) => failure !== undefined || own.length === 0,
  ).length;
  if (values.json) console.log(JSON.stringify(results));
  console.log(
    `${rows.length - failed} comparisons hold, ${failed} do not; ${unfinished} groups did not finish`,
  );
  if (failed + unfinished > 0) process.exitCode = 1;
}

main().catch((error) => {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
});
