// What the scripts that run nvcc share: finding it, running it, reading ptxas's messages.
import { execFile, spawnSync } from "node:child_process";
import { readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const SOURCES = join(root, "native", "cuda");
/** Characters. */
const MOST_MESSAGES = 2 ** 26;

/** nvcc from PATH or the toolkit's usual place, or null. */
export function findCompiler() {
  const candidates = [process.env.NVCC, "nvcc", "/usr/local/cuda/bin/nvcc"].filter((each) => each);
  return candidates.find((each) => spawnSync(each, ["--version"]).status === 0) ?? null;
}

/** When a header that kernels include was last changed. */
export function newestHeaderMs() {
  const folders = [SOURCES, join(root, "native", "common")];
  const headers = folders.flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => /\.(h|cuh)$/.test(name))
      .map((name) => statSync(join(folder, name)).mtimeMs),
  );
  return Math.max(0, ...headers);
}

/** Runs nvcc; resolves to its messages. */
export async function compile(compiler, args) {
  const { stdout, stderr } = await promisify(execFile)(compiler, args, { maxBuffer: MOST_MESSAGES });
  return stdout + stderr;
}

/** Kernel, architecture and figures out of ptxas's messages. */
export function resourceRows(file, messages) {
  const rows = [];
  let current;
  for (const line of messages.split("\n")) {
    const entry = /Compiling entry function '(.+)' for '(.+)'/.exec(line);
    if (entry) {
      current = {
        file,
        kernel: entry[1],
        arch: entry[2],
        registers: 0,
        spillBytes: 0,
        sharedBytes: 0,
        stackBytes: 0,
      };
      rows.push(current);
    }
    const frame = /(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads/.exec(line);
    // A frame is reported for device functions too; those of kernels follow their entry.
    if (frame && current && current.registers === 0) {
      current.stackBytes = Number(frame[1]);
      current.spillBytes = Number(frame[2]) + Number(frame[3]);
    }
    const used = /Used (\d+) registers/.exec(line);
    if (used && current && current.registers === 0) {
      current.registers = Number(used[1]);
      current.sharedBytes = Number(/(\d+) bytes smem/.exec(line)?.[1] ?? 0);
    }
  }
  return rows;
}

/** The rows as a table, by kernel and architecture. */
export function resourceText(rows) {
  const head = ["kernel", "arch", "registers", "spilled bytes", "stack bytes", "static shared bytes"];
  const lines = rows
    .sort((a, b) => a.kernel.localeCompare(b.kernel) || a.arch.localeCompare(b.arch, "en", { numeric: true }))
    .map((row) =>
      [row.kernel, row.arch, row.registers, row.spillBytes, row.stackBytes, row.sharedBytes].map(String),
    );
  const widths = head.map((title, i) => Math.max(title.length, ...lines.map((line) => line[i].length)));
  const format = (cells) =>
    cells.map((cell, i) => (i < 2 ? cell.padEnd(widths[i]) : cell.padStart(widths[i]))).join("  ");
  return `${[head, ...lines].map(format).join("\n")}\n`;
}
