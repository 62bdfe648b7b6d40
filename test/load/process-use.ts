// What the system says of a process, and `ds4-server` of itself.
import { readdirSync, readFileSync } from "node:fs";
import { median } from "../../src/core/median.ts";

/** What a process holds. Linux only. */
export interface ProcessUse {
  rssBytes: number;
  /** Open files, sockets and event handles. */
  handles: number;
  threads: number;
}

/** Reads `/proc`. Throws where there is none, or no such process. */
export function processUse(pid: number): ProcessUse {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const field = (name: string) => Number(new RegExp(`^${name}:\\s*(\\d+)`, "m").exec(status)![1]);
  return {
    rssBytes: field("VmRSS") * 1024,
    handles: readdirSync(`/proc/${pid}/fd`).length,
    threads: field("Threads"),
  };
}

/** Resident memory over a while. */
export interface MemoryWatch {
  /** Bytes, oldest first. */
  samples: readonly number[];
  /** `drift`: the last third's median over the first third's, less one. */
  figures(): { medianBytes: number; leastBytes: number; mostBytes: number; drift: number };
  stop(): void;
}

/** Reads a process's resident memory at intervals until stopped. */
export function watchMemory(pid: number, everyMs: number): MemoryWatch {
  const samples: number[] = [];
  const timer = setInterval(() => samples.push(processUse(pid).rssBytes), everyMs);
  const figures = () => {
    const third = Math.floor(samples.length / 3);
    return {
      medianBytes: median(samples),
      leastBytes: Math.min(...samples),
      mostBytes: Math.max(...samples),
      drift: median(samples.slice(-third)) / median(samples.slice(0, third)) - 1,
    };
  };
  return { samples, figures, stop: () => clearInterval(timer) };
}

/** The samples of `/metrics` by name and labels. */
export async function readMetrics(url: string): Promise<Map<string, number>> {
  const text = await (await fetch(`${url}/metrics`, { headers: { connection: "close" } })).text();
  const samples = text
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line): [string, number] => {
      const space = line.lastIndexOf(" ");
      return [line.slice(0, space), Number(line.slice(space + 1))];
    });
  return new Map(samples);
}
