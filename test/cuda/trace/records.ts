// The kernels of a trace file: what kernel-trace.cpp writes.
import { Ds4Error } from "../../../src/core/errors.ts";

/** One run of a kernel. */
export interface KernelRun {
  name: string;
  /** Nanoseconds since the first kernel of the trace began. */
  startNs: number;
  endNs: number;
  /** Blocks of the grid. */
  blocks: number;
  /** Per block; 0 where the trace does not say. */
  threads: number;
  registers: number;
  dynamicSharedBytes: number;
  /** Null where the trace does not say. */
  isReplayed: boolean | null;
}

/** A trace, kernels in the order in which they began. */
export interface KernelTrace {
  runs: KernelRun[];
  /** Older kernels that were not kept, and such that CUPTI lost or had no times for. */
  overwritten: number;
  lost: number;
}

const REQUIRED = ["start_ns", "end_ns", "name", "grid_x"] as const;

/**
 * Reads a trace. Throws `usage` for a text that is none, with the line, and for one that was cut off because the process
 * did not end by itself.
 */
export function parseTrace(text: string, path = "the trace"): KernelTrace {
  const lines = text.split("\n");
  const columns = lines[0].split(",");
  for (const name of REQUIRED) {
    if (!columns.includes(name)) throw bad(path, 1, `a column "${name}"`, `"${lines[0].slice(0, 80)}"`);
  }
  const end = /^# end kept (\d+) seen (\d+) dropped (\d+) untimed (\d+)$/m.exec(text);
  if (end === null) {
    throw new Ds4Error(
      "usage",
      `${path}: the last line "# end ..." is missing: the traced process ended before it wrote its records; ` +
        "see its messages above, and the room on the disk",
    );
  }
  const [kept, seen, dropped, untimed] = end.slice(1).map(Number);
  const [first] = /^\d+/.exec(lines[1].split(",")[columns.indexOf("start_ns")] ?? "") ?? ["0"];
  const base = BigInt(first);
  const runs: KernelRun[] = [];
  for (let i = 1; i < lines.length; i++) {
    if (lines[i] === "" || lines[i].startsWith("#")) continue;
    const cells = lines[i].split(",");
    if (cells.length !== columns.length) {
      throw bad(path, i + 1, `${columns.length} fields`, `${cells.length} in "${lines[i].slice(0, 80)}"`);
    }
    runs.push(runOf(columns, cells, base, path, i + 1));
  }
  if (runs.length !== kept) throw bad(path, lines.length, `${kept} kernels`, String(runs.length));
  runs.sort((a, b) => a.startNs - b.startNs || a.endNs - b.endNs);
  return { runs, overwritten: seen - kept, lost: dropped + untimed };
}

function runOf(
  columns: readonly string[],
  cells: readonly string[],
  base: bigint,
  path: string,
  line: number,
): KernelRun {
  const cell = (name: string) => cells[columns.indexOf(name)];
  const count = (name: string, otherwise: number) => {
    const text = cell(name) ?? String(otherwise);
    if (!/^\d+$/.test(text)) throw bad(path, line, `a whole number as ${name}`, `"${text}"`);
    return Number(text);
  };
  const time = (name: "start_ns" | "end_ns") => {
    count(name, 0);
    return Number(BigInt(cell(name)) - base);
  };
  const product = (which: "grid" | "block", otherwise: number) =>
    count(`${which}_x`, otherwise) * count(`${which}_y`, 1) * count(`${which}_z`, 1);
  return {
    name: cell("name"),
    ...{ startNs: time("start_ns"), endNs: time("end_ns") },
    ...{ blocks: product("grid", 1), threads: product("block", 0) },
    ...{ registers: count("registers", 0), dynamicSharedBytes: count("dynamic_shared", 0) },
    isReplayed: columns.includes("graph_node") ? count("graph_node", 0) > 0 : null,
  };
}

function bad(path: string, line: number, expected: string, found: string): Ds4Error {
  return new Ds4Error(
    "usage",
    `${path}, line ${line}: expected ${expected}, found ${found}; ` +
      "traces are what npm run cuda:trace writes with --trace",
  );
}
