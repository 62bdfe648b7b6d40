// How fast and in how much memory a file is loaded: seconds and GiB/s beside a plain O_DIRECT read of the same file in
// the same run, peak memory against the plan, page cache left behind, and growth while the context is filled.
// Usage: node scripts/measure-load.ts -m FILE [--ctx 1024] [--threads N] [--no-read] [--no-fill] [--json]
// Linux; the plain read is done by dd. The load runs in a process of its own, after one that touches as much memory:
// in a virtual machine whose host backs memory on demand, that alone may take longer than reading.
import { execFileSync, spawnSync } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { createCpuBackend } from "../src/backend/cpu/cpu-backend.ts";
import { loadNative } from "../src/backend/native.ts";
import { nativeKernels } from "../src/backend/native-kernels.ts";
import { runOptions } from "../src/cli/preflight.ts";
import { textTable } from "../src/core/text-table.ts";
import { formatBytes, formatSeconds, GIB } from "../src/core/units.ts";
import { openGguf } from "../src/gguf/open-gguf.ts";
import { probeMachine } from "../src/machine/probe.ts";
import { bindModel } from "../src/model/weights.ts";
import { planMemory, type RegionOwner, regionBytes } from "../src/plan/memory-plan.ts";

/** What the loading process reports. Bytes. */
interface LoadReport {
  fileBytes: number;
  loadSeconds: number;
  /** Resident before the load, and the most until its end. */
  beforeBytes: number;
  peakBytes: number;
  /** Weights and staging, as planned. */
  plannedBytes: number;
  loadedBytes: number;
  cachedBytes: number;
  /** After all positions of the context were evaluated; 0 when that was not asked for. */
  filledBytes: number;
  /** KV and scratch, as planned. */
  plannedFillBytes: number;
}

const { values } = parseArgs({
  options: {
    model: { type: "string", short: "m" },
    ctx: { type: "string", default: "1024" },
    threads: { type: "string", default: String(availableParallelism()) },
    "no-read": { type: "boolean", default: false },
    "no-fill": { type: "boolean", default: false },
    json: { type: "boolean", default: false },
    child: { type: "boolean", default: false },
    touch: { type: "string" },
  },
});
const path = values.model ?? "models/nano-q2-q4.gguf";

/** A line of /proc/self/status. */
function statusBytes(name: "VmHWM" | "VmRSS"): number {
  const line = new RegExp(`^${name}:\\s*(\\d+) kB$`, "m").exec(readFileSync("/proc/self/status", "utf8"));
  return Number(line?.[1]) * 1024;
}

function measure(): LoadReport {
  const { addon, reason } = loadNative();
  if (addon === null) throw new Error(`no native addon: ${reason}`);
  const threads = Number(values.threads);
  const ctxTokens = Number(values.ctx);
  const file = openGguf(path);
  const model = bindModel(file);
  const options = runOptions(model.spec, { backend: "cpu", threads, ctxTokens });
  const plan = planMemory(path, model, options, probeMachine());
  const planned = (...owners: RegionOwner[]) => regionBytes(plan, ({ owner }) => owners.includes(owner));
  const beforeBytes = statusBytes("VmRSS");
  const started = performance.now();
  const backend = createCpuBackend(file, addon, { threads });
  const loadSeconds = (performance.now() - started) / 1000;
  const report: LoadReport = {
    ...{ fileBytes: file.sizeBytes, loadSeconds, beforeBytes, peakBytes: statusBytes("VmHWM") },
    ...{ plannedBytes: planned("weights", "staging"), loadedBytes: statusBytes("VmRSS") },
    ...{ cachedBytes: cachedBytes(file.parts), filledBytes: 0, plannedFillBytes: planned("kv", "scratch") },
  };
  file.close();
  if (!values["no-fill"]) {
    const kv = backend.createKv(ctxTokens);
    for (let start = 0; start < ctxTokens; start += backend.maxBatchTokens) {
      const count = Math.min(backend.maxBatchTokens, ctxTokens - start);
      const tokens = Int32Array.from({ length: count }, (_, i) => (start + 7 * i) % backend.spec.vocabSize);
      backend.forward([{ kv, tokens, logits: start + count === ctxTokens ? "last" : "none" }]);
    }
    report.filledBytes = statusBytes("VmHWM");
  }
  backend.close();
  return report;
}

function cachedBytes(parts: readonly string[]): number {
  const kernels = nativeKernels(loadNative().addon!);
  let bytes = 0;
  for (const part of parts) {
    const descriptor = openSync(part, "r");
    bytes += kernels.cachedFileBytes(descriptor);
    closeSync(descriptor);
  }
  return bytes;
}

/** Seconds that dd takes to read all parts past the page cache. */
function plainReadSeconds(parts: readonly string[]): number {
  const started = performance.now();
  for (const part of parts) {
    const result = spawnSync("dd", [`if=${part}`, "of=/dev/null", "bs=8M", "iflag=direct"], {
      encoding: "utf8",
    });
    if (result.status !== 0) throw new Error(`dd: ${result.stderr}`);
  }
  return (performance.now() - started) / 1000;
}

/** Seconds that writing to every page of fresh memory takes, in a process of its own. */
function touchSeconds(bytes: number): number {
  const args = [import.meta.filename, "--touch", String(bytes)];
  return Number(execFileSync(process.execPath, args, { encoding: "utf8" }));
}

function touch(bytes: number): number {
  const started = performance.now();
  const held: Uint8Array[] = [];
  for (let done = 0; done < bytes; done += GIB)
    held.push(new Uint8Array(Math.min(GIB, bytes - done)).fill(1));
  return (performance.now() - started) / 1000;
}

/** The kernel's own peak of this process's control group, page cache included; null where it is not kept. */
function cgroupPeakBytes(): number | null {
  const groups = readFileSync("/proc/self/cgroup", "utf8");
  const v2 = /^0::(.*)$/m.exec(groups)?.[1];
  const v1 = /^\d+:memory:(.*)$/m.exec(groups)?.[1];
  const candidates = [
    `/sys/fs/cgroup${v2}/memory.peak`,
    `/sys/fs/cgroup/memory${v1}/memory.max_usage_in_bytes`,
  ];
  const found = candidates.find((candidate) => existsSync(candidate));
  return found === undefined ? null : Number(readFileSync(found, "utf8"));
}

function compare(): void {
  const file = openGguf(path);
  const { parts, sizeBytes } = file;
  file.close();
  const before = cachedBytes(parts);
  const readBefore = values["no-read"] ? Number.NaN : plainReadSeconds(parts);
  const firstTouch = touchSeconds(sizeBytes);
  const args = [import.meta.filename, ...process.argv.slice(2), "--child"];
  const report: LoadReport = JSON.parse(execFileSync(process.execPath, args, { encoding: "utf8" }));
  // A second read, since disks in the cloud change their speed: the share is of the mean of both.
  const readSeconds = values["no-read"] ? Number.NaN : (readBefore + plainReadSeconds(parts)) / 2;
  const facts = {
    path,
    ...report,
    readSeconds,
    cachedBeforeBytes: before,
    cgroupPeakBytes: cgroupPeakBytes(),
  };
  if (values.json) {
    console.log(JSON.stringify(facts, null, 2));
    return;
  }
  const rate = (seconds: number) => `${(sizeBytes / GIB / seconds).toFixed(2)} GiB/s`;
  const share = (part: number, whole: number) => `${((100 * part) / whole).toFixed(1)} %`;
  const loadNeed = report.beforeBytes + report.plannedBytes;
  const rows = [
    ["file", formatBytes(sizeBytes), `${parts.length} part${parts.length === 1 ? "" : "s"}`],
    ["plain read", formatSeconds(readSeconds), rate(readSeconds)],
    ["touching as much memory", formatSeconds(firstTouch), rate(firstTouch)],
    ["load", formatSeconds(report.loadSeconds), rate(report.loadSeconds)],
    ["share of the plain read", share(readSeconds, report.loadSeconds), ""],
    ["process before the load", formatBytes(report.beforeBytes), ""],
    ["planned: weights, staging", formatBytes(report.plannedBytes), ""],
    ["peak of the load", formatBytes(report.peakBytes), `${share(report.peakBytes, loadNeed)} of the above`],
    ["resident after it", formatBytes(report.loadedBytes), ""],
    [
      "page cache left",
      formatBytes(report.cachedBytes),
      `${share(report.cachedBytes, sizeBytes)} of the file`,
    ],
    ["page cache before", formatBytes(before), ""],
  ];
  if (report.filledBytes > 0) {
    const need = report.beforeBytes + report.plannedBytes + report.plannedFillBytes;
    rows.push(
      ["planned: KV, scratch", formatBytes(report.plannedFillBytes), `ctx ${values.ctx}`],
      [
        "peak, context filled",
        formatBytes(report.filledBytes),
        `${share(report.filledBytes, need)} of the plan`,
      ],
    );
  }
  if (facts.cgroupPeakBytes !== null)
    rows.push(["peak of the control group", formatBytes(facts.cgroupPeakBytes), ""]);
  console.log(textTable("lrl", [["what", "amount", ""], ...rows], { isRuled: true }).join("\n"));
}

if (values.touch !== undefined) console.log(touch(Number(values.touch)));
else if (values.child) console.log(JSON.stringify(measure()));
else compare();
