// Gathers the facts that go with every run: code version, machine, file.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { availableParallelism, cpus, loadavg, release, type } from "node:os";
import { basename, join } from "node:path";
import type { BenchFacts } from "../bench/bench-facts.ts";
import { openByteSource } from "../gguf/file-source.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { probeMachine } from "../machine/probe.ts";
import { PACKAGE_ROOT, packageVersion } from "./package-version.ts";

/** Facts of this machine and code at this moment; those of the model and the run are zero or empty. */
export function machineFacts(argv: readonly string[]): BenchFacts {
  const [host] = probeMachine().pools;
  return {
    version: commitVersion(),
    date: new Date().toISOString(),
    command: [basename(argv[1] ?? "ds4").replace(/\.[jt]s$/, ""), ...argv.slice(2)]
      .map(quoteArgument)
      .join(" "),
    system: `${type()} ${release()}, node ${process.versions.node}`,
    cpu: cpus()[0]?.model.trim() ?? "unknown processor",
    coreCount: cpus().length || availableParallelism(),
    memoryBytes: host.totalBytes,
    availableBytes: host.availableBytes,
    loadAverage: loadavg()[0],
    backend: "",
    backendDescription: "",
    modelFile: "",
    modelBytes: 0,
    modelFingerprint: "",
    loadMs: 0,
    chunkTokens: 0,
    ctxAllocTokens: 0,
    weightBytesPerToken: 0,
    readBandwidth: 0,
    bandwidthKind: "memory reads",
    planBytes: 0,
    heldBytes: 0,
    peakRssBytes: 0,
  };
}

/** Largest memory that this process has held, bytes. */
export function peakRssBytes(): number {
  return process.resourceUsage().maxRSS * 1024;
}

/** SHA-256 over the size of all parts and the header of the first, hexadecimal. Throws `io`. */
export function fileFingerprint(file: GgufFile): string {
  const offsets = file.tensors.filter((tensor) => tensor.fileIndex === 0).map((tensor) => tensor.offsetBytes);
  const source = openByteSource(file.parts[0]);
  try {
    const header = new Uint8Array(
      offsets.reduce((least, offset) => Math.min(least, offset), source.sizeBytes),
    );
    source.readInto(header, 0);
    return createHash("sha256").update(`${file.sizeBytes}\n`).update(header).digest("hex");
  } finally {
    source.close();
  }
}

// With the commit where this is a clone, so that a report names the code exactly.
function commitVersion(): string {
  const version = packageVersion();
  if (!existsSync(join(PACKAGE_ROOT, ".git"))) return version;
  try {
    const stdio = ["ignore", "pipe", "ignore"] as const;
    const git = (...argv: string[]) =>
      execFileSync("git", ["-C", PACKAGE_ROOT, ...argv], { encoding: "utf8", stdio: [...stdio] }).trim();
    const changed = git("status", "--porcelain", "--untracked-files=no") === "" ? "" : ", changed";
    return `${version} (${git("rev-parse", "--short", "HEAD")}${changed})`;
  } catch {
    return version; // no git here
  }
}

function quoteArgument(argument: string): string {
  return /^[\w./:=@%+,-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", "'\\''")}'`;
}
