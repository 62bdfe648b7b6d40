// What a reader needs beside the figures of a run: which code, machine, file and settings made them. A report without
// these cannot be acted on, so they are printed with every run.
import { textTable } from "../core/text-table.ts";
import { formatBytes, formatSeconds } from "../core/units.ts";

/** Facts of one run; all of them go into the paste-ready block and into the JSON. Zero or empty means not known. */
export interface BenchFacts {
  /** Package version and, where known, commit. */
  version: string;
  /** ISO 8601, UTC. */
  date: string;
  /** As typed, to run it again. */
  command: string;
  /** Kernel and its release, and the runtime's version. */
  system: string;
  /** Model name of the first processor. */
  cpu: string;
  /** Logical processors of the machine. */
  coreCount: number;
  memoryBytes: number;
  /** Memory that could be had, and the load over the last minute, when the run began. */
  availableBytes: number;
  loadAverage: number;
  /** Name and one line: kernel level and threads; through HTTP the server's address. */
  backend: string;
  backendDescription: string;
  modelFile: string;
  modelBytes: number;
  /** SHA-256 of the file's size and header: tells files apart without reading 90 GB. */
  modelFingerprint: string;
  /** From the open file until the backend is ready. */
  loadMs: number;
  chunkTokens: number;
  ctxAllocTokens: number;
  weightBytesPerToken: number;
  /** Of the memory that holds the weights, bytes per second: reads by the host's threads or copies by the device. */
  readBandwidth: number;
  bandwidthKind: "memory reads" | "device copies";
  /** What was planned for weights, KV state and scratch, what the backend counts of them, and the process's most memory. */
  planBytes: number;
  heldBytes: number;
  peakRssBytes: number;
}

/** The block to paste into a report: one line per kind of fact, unknown ones left out. */
export function formatFacts(facts: BenchFacts): string {
  const { chunkTokens, ctxAllocTokens, weightBytesPerToken, readBandwidth, bandwidthKind } = facts;
  const { planBytes, heldBytes, peakRssBytes } = facts;
  const memory = `${formatBytes(facts.memoryBytes)}, ${formatBytes(facts.availableBytes)} available`;
  const lines: [string, string[]][] = [
    ["ds4-ts", [facts.version, facts.date]],
    ["command", [facts.command]],
    ["system", [facts.system, `load ${facts.loadAverage.toFixed(2)} at the start`]],
    ["cpu", [facts.cpu, `${facts.coreCount} logical cores`]],
    ["memory", [memory]],
    ["backend", [facts.backend, facts.backendDescription]],
    [
      "model",
      [
        facts.modelFile,
        facts.modelBytes > 0 ? `${formatBytes(facts.modelBytes)} (${facts.modelBytes} bytes)` : "",
        facts.modelFingerprint === "" ? "" : `header sha256 ${facts.modelFingerprint.slice(0, 16)}`,
      ],
    ],
    ["load", [loadText(facts)]],
    [
      "context",
      [
        ctxAllocTokens > 0 ? `${ctxAllocTokens} allocated` : "",
        chunkTokens > 0 ? `prefill chunk ${chunkTokens}` : "",
      ],
    ],
    [
      "reads",
      [
        weightBytesPerToken > 0 ? `${formatBytes(weightBytesPerToken)} of weights per token` : "",
        readBandwidth > 0 ? `${bandwidthKind} ${(readBandwidth / 1e9).toFixed(1)} GB/s` : "",
      ],
    ],
    [
      "peak",
      [
        peakRssBytes > 0 ? `${formatBytes(peakRssBytes)} in the process` : "",
        heldBytes > 0 ? `${formatBytes(heldBytes)} in the backend` : "",
        planBytes > 0 ? `planned ${formatBytes(planBytes)}` : "",
      ],
    ],
  ];
  const known = lines
    .map(([name, parts]) => [name, parts.filter((part) => part !== "").join("; ")])
    .filter(([, text]) => text !== "");
  return textTable("ll", known).join("\n");
}

function loadText({ loadMs, modelBytes }: BenchFacts): string {
  if (loadMs <= 0) return "";
  return `${formatSeconds(loadMs / 1000)}; ${(modelBytes / loadMs / 1e6).toFixed(1)} GB/s`;
}
