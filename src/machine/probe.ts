// Describes the running machine's host memory from the operating system's own accounting.
import { formatBytes, GIB } from "../core/units.ts";
import { readCgroupLimits } from "./cgroup-limits.ts";
import type { Machine } from "./machine.ts";
import { type SystemReader, systemReader } from "./system-reader.ts";

/** tmpfs use from which a warning is given: below it, it does not decide whether a model fits. */
const TMPFS_WARNING_BYTES = 4 * GIB;

/**
 * Probes this machine. Only host memory: device pools are added by the backend that can see them. Never throws;
 * what cannot be read is left at the runtime's own figures.
 */
export function probeMachine(reader: SystemReader = systemReader): Machine {
  const memory = readMeminfo(reader);
  const limits = readCgroupLimits(reader);
  const availableBytes = Math.min(memory.availableBytes, ...limits.map((limit) => limit.availableBytes));
  const tmpfsBytes = readTmpfsBytes(reader);
  const isWsl = /microsoft/i.test(reader.readText("/proc/version") ?? "");
  const machine: Machine = {
    name: "this machine",
    pools: [{ id: "host", kind: "host", totalBytes: memory.totalBytes, availableBytes, limits }],
    swapTotalBytes: memory.swapTotalBytes,
    swapFreeBytes: memory.swapFreeBytes,
    tmpfsBytes,
    isWsl,
    warnings: [],
  };
  machine.warnings = describeTrouble(machine);
  return machine;
}

interface Meminfo {
  totalBytes: number;
  availableBytes: number;
  swapTotalBytes: number;
  swapFreeBytes: number;
}

function readMeminfo(reader: SystemReader): Meminfo {
  const text = reader.readText("/proc/meminfo");
  const field = (name: string): number | null => {
    const match = new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(text ?? "");
    return match ? Number(match[1]) * 1024 : null;
  };
  const fallback = reader.fallbackMemory();
  const totalBytes = field("MemTotal") ?? fallback.totalBytes;
  // MemAvailable is the kernel's own estimate of what can be had without swapping: free plus clean cache.
  const availableBytes = field("MemAvailable") ?? field("MemFree") ?? fallback.freeBytes;
  return {
    totalBytes,
    availableBytes,
    swapTotalBytes: field("SwapTotal") ?? 0,
    swapFreeBytes: field("SwapFree") ?? 0,
  };
}

function readTmpfsBytes(reader: SystemReader): number {
  const mounts = reader.readText("/proc/mounts") ?? "";
  const seen = new Set<string>();
  let bytes = 0;
  for (const line of mounts.split("\n")) {
    const [, mountPoint, type] = line.split(" ");
    if (type !== "tmpfs" || mountPoint === undefined || seen.has(mountPoint)) continue;
    seen.add(mountPoint);
    bytes += reader.usedBytes(mountPoint.replaceAll("\\040", " ")) ?? 0;
  }
  return bytes;
}

function describeTrouble(machine: Machine): string[] {
  const warnings: string[] = [];
  if (machine.tmpfsBytes >= TMPFS_WARNING_BYTES) {
    warnings.push(
      `${formatBytes(machine.tmpfsBytes)} of memory are held by files in tmpfs (such as /dev/shm); remove them to free it`,
    );
  }
  const swapUsedBytes = machine.swapTotalBytes - machine.swapFreeBytes;
  if (swapUsedBytes > GIB) {
    warnings.push(`${formatBytes(swapUsedBytes)} of swap are in use: the machine is already short of memory`);
  }
  if (machine.isWsl) {
    warnings.push(
      "this is WSL: Windows caps its memory (by default half of the machine); see memory= in .wslconfig",
    );
  }
  return warnings;
}
