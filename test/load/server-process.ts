// `ds4-server` in a process of its own over the bundled model, and what the system says of that process.
import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { median } from "../../src/core/median.ts";

const ENTRY = join(import.meta.dirname, "..", "..", "src", "cli", "ds4-server.ts");

/** A server that is ready. */
export interface ServerProcess {
  child: ChildProcess;
  url: string;
  port: number;
  /** Everything it wrote to stderr so far. */
  log(): string;
  /** Resolves with the exit code, null after a signal. */
  exited: Promise<number | null>;
}

/** Starts the server and waits until it is ready. Throws when it ends before. */
export async function startServer(...flags: string[]): Promise<ServerProcess> {
  const args = [ENTRY, "--port", "0", ...flags];
  // The load test's own settings would be warned of as unknown ones.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !name.startsWith("DS4_LOAD_")),
  );
  const child = spawn(process.execPath, args, { env, stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
  const port = await new Promise<number>((resolve, reject) => {
    child.stderr.on("data", (chunk: Buffer) => {
      log += chunk;
      const ready = /^ready: .* on http:\S+:(\d+),/m.exec(log);
      if (ready !== null) resolve(Number(ready[1]));
    });
    child.once("exit", (code) => reject(new Error(`the server ended with code ${code}: ${log}`)));
  });
  return { child, url: `http://127.0.0.1:${port}`, port, log: () => log, exited };
}

/** Asks the server to stop, waits for it. */
export async function stopServer({ child, exited }: ServerProcess): Promise<number | null> {
  child.kill("SIGTERM");
  return exited;
}

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
