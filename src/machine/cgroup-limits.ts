// Control-group memory limits of this process, version 2 and 1: every ancestor counts, since each may be the
// one that kills. Page cache inside the group is reclaimable and therefore counts as available.
import type { MemoryLimit } from "./machine.ts";
import type { SystemReader } from "./system-reader.ts";

/** Values at or above this mean "no limit" in version 1 (it prints a huge number) and are ignored. */
const UNLIMITED_BYTES = 2 ** 60;

/** Deepest hierarchy walked; real ones have fewer than ten levels. */
const MAX_DEPTH = 64;

/** All limits that apply, innermost first; empty when there are none or this is not Linux. */
export function readCgroupLimits(reader: SystemReader): MemoryLimit[] {
  const table = reader.readText("/proc/self/cgroup");
  if (table === null) return [];
  const limits: MemoryLimit[] = [];
  for (const line of table.split("\n")) {
    const match = /^\d+:([^:]*):(\/.*)$/.exec(line.trim());
    if (!match) continue;
    const [, controllers, path] = match;
    if (controllers === "") limits.push(...walk(reader, path, readV2));
    else if (controllers.split(",").includes("memory")) limits.push(...walk(reader, path, readV1));
  }
  return limits;
}

type LevelReader = (reader: SystemReader, path: string) => MemoryLimit | null;

function walk(reader: SystemReader, path: string, readLevel: LevelReader): MemoryLimit[] {
  const limits: MemoryLimit[] = [];
  let level = path;
  for (let depth = 0; depth < MAX_DEPTH; depth++) {
    const limit = readLevel(reader, level);
    if (limit !== null) limits.push(limit);
    if (level === "/" || level === "") break;
    level = level.slice(0, level.lastIndexOf("/")) || "/";
  }
  return limits;
}

function readV2(reader: SystemReader, path: string): MemoryLimit | null {
  const folder = `/sys/fs/cgroup${path === "/" ? "" : path}`;
  // memory.high throttles hard before memory.max kills: both are ceilings for us.
  const ceilings = ["memory.max", "memory.high"]
    .map((name) => parseBytes(reader.readText(`${folder}/${name}`)))
    .filter((value) => value !== null);
  const currentBytes = parseBytes(reader.readText(`${folder}/memory.current`));
  if (ceilings.length === 0 || currentBytes === null) return null;
  const stat = reader.readText(`${folder}/memory.stat`);
  const reclaimable = statBytes(stat, "inactive_file") + statBytes(stat, "active_file");
  return toLimit(`cgroup v2 ${path}`, Math.min(...ceilings), currentBytes, reclaimable);
}

function readV1(reader: SystemReader, path: string): MemoryLimit | null {
  const folder = `/sys/fs/cgroup/memory${path === "/" ? "" : path}`;
  const limitBytes = parseBytes(reader.readText(`${folder}/memory.limit_in_bytes`));
  const currentBytes = parseBytes(reader.readText(`${folder}/memory.usage_in_bytes`));
  if (limitBytes === null || currentBytes === null) return null;
  const stat = reader.readText(`${folder}/memory.stat`);
  const reclaimable = statBytes(stat, "total_inactive_file") + statBytes(stat, "total_active_file");
  return toLimit(`cgroup v1 ${path}`, limitBytes, currentBytes, reclaimable);
}

function toLimit(
  source: string,
  limitBytes: number,
  currentBytes: number,
  reclaimableBytes: number,
): MemoryLimit {
  const usedBytes = Math.max(0, currentBytes - reclaimableBytes);
  return { source, limitBytes, availableBytes: Math.max(0, limitBytes - usedBytes) };
}

function parseBytes(text: string | null): number | null {
  const trimmed = text?.trim();
  if (trimmed === undefined || !/^\d+$/.test(trimmed)) return null; // "max" is no limit
  const value = Number(trimmed);
  return value < UNLIMITED_BYTES ? value : null;
}

function statBytes(stat: string | null, key: string): number {
  const match = new RegExp(`^${key} (\\d+)$`, "m").exec(stat ?? "");
  return match ? Number(match[1]) : 0;
}
