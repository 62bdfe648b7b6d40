// Measures the CPU kernels by tensor type, instruction-set level and thread count: decode (one activation row, weights
// from memory) in GB/s and as a share of the plain read bandwidth of the same run, prefill (256 rows) in billions of
// multiply-adds per second and as a share of the peak, repacking in GB/s of file bytes. The float32 peak is measured;
// int8's is taken as four times it (products per instruction, issued at the same rate).
// Usage: node scripts/bench-kernels.ts [--types Q8_0,Q4_K] [--levels avx2,avx512] [--threads 1,2] [--seconds 0.5]
//        [--megabytes 192] [--json]
import { spawnSync } from "node:child_process";
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { loadNative } from "../src/backend/native.ts";
import { type NativeKernels, nativeKernels, type Workspace } from "../src/backend/native-kernels.ts";
import { type GgmlType, ggmlType } from "../src/blocks/ggml-types.ts";
import { textTable } from "../src/core/text-table.ts";
import { PACKABLE_TYPES, randomBlocks } from "../test/native/random-blocks.ts";
import { gaussianValues } from "../test/random-values.ts";

interface Row {
  level: string;
  threads: number;
  type: GgmlType;
  /** Bytes per second. */
  decode: number;
  readBandwidth: number;
  /** Multiply-adds per second. */
  prefill: number;
  /** Multiply-adds per second of registers alone, for the type's kind of product. */
  prefillPeak: number;
  /** File bytes per second. */
  pack: number;
}

type Kernels = NativeKernels & {
  measureReadBandwidth(bytes: number, threads: number, rounds: number): number;
  measureMultiplyAdds(workspace: Workspace): number;
};

/** Types whose products are of int8. */
const INT8_TYPES: readonly GgmlType[] = ["Q8_0", "Q2_K", "Q4_K", "IQ2_XXS"];

const COLS = 4096;
const PREFILL_ROWS = 256;
const PREFILL_OUTPUTS = 1024;
/** Rows packed per call, as loading does: some megabytes. */
const PACK_ROWS = 512;

const { values } = parseArgs({
  options: {
    types: { type: "string", default: PACKABLE_TYPES.join(",") },
    levels: { type: "string" },
    threads: { type: "string", default: "1,2" },
    seconds: { type: "string", default: "0.5" },
    megabytes: { type: "string", default: "192" },
    json: { type: "boolean", default: false },
    "this-level": { type: "boolean", default: false },
  },
});

/** Seconds of the fastest of the runs that fit into the time given; one warm-up run comes first. */
function fastest(run: () => void): number {
  run();
  let best = Number.POSITIVE_INFINITY;
  const end = performance.now() + Number(values.seconds) * 1000;
  for (let start = performance.now(); start < end; start = performance.now()) {
    run();
    best = Math.min(best, (performance.now() - start) / 1000);
  }
  return best;
}

function measureType(kernels: Kernels, type: GgmlType, threads: number, readBandwidth: number): Row {
  const info = ggmlType(type);
  const rowBytes = (COLS / info.blockValues) * info.blockBytes;
  const rows = Math.ceil((Number(values.megabytes) * 1e6) / rowBytes / PACK_ROWS) * PACK_ROWS;
  const workspace = new kernels.Workspace(threads);
  const arena = new kernels.WeightArena(rows * rowBytes);
  const matrix = new kernels.WeightMatrix(arena, 0, info.id, 1, rows, COLS);
  const source = randomBlocks(type, (PACK_ROWS * COLS) / info.blockValues, 1);
  const packAll = () => {
    for (let row = 0; row < rows; row += PACK_ROWS) matrix.packRows(workspace, 0, row, PACK_ROWS, source);
  };
  const packSeconds = fastest(packAll);
  const x = gaussianValues(COLS * PREFILL_ROWS, 2);
  const out = new Float32Array(Math.max(rows, PREFILL_OUTPUTS * PREFILL_ROWS));
  const decodeSeconds = fastest(() => kernels.multiply(workspace, 1, x, [matrix], [out]));
  const part = new kernels.WeightMatrix(arena, 0, info.id, 1, PREFILL_OUTPUTS, COLS);
  const prefillSeconds = fastest(() => kernels.multiply(workspace, PREFILL_ROWS, x, [part], [out]));
  return {
    level: kernels.kernelLevelName(),
    threads,
    type,
    decode: (rows * rowBytes) / decodeSeconds,
    readBandwidth,
    prefill: (PREFILL_ROWS * PREFILL_OUTPUTS * COLS) / prefillSeconds,
    prefillPeak: kernels.measureMultiplyAdds(workspace) * (INT8_TYPES.includes(type) ? 4 : 1),
    pack: (rows * rowBytes) / packSeconds,
  };
}

function measureThisLevel(): Row[] {
  const loaded = loadNative();
  if (loaded.addon === null) throw new Error(`no native addon: ${loaded.reason}`);
  const kernels = nativeKernels(loaded.addon) as Kernels;
  const rows: Row[] = [];
  for (const threads of (values.threads ?? "").split(",").map(Number)) {
    const readBandwidth = kernels.measureReadBandwidth(Number(values.megabytes) * 1e6, threads, 5);
    for (const type of (values.types ?? "").split(",")) {
      rows.push(measureType(kernels, type as GgmlType, threads, readBandwidth));
    }
  }
  return rows;
}

/** One process per level: the level is chosen once per process. A level that this machine lacks gives no rows. */
function measureLevels(): Row[] {
  const levels =
    values.levels?.split(",") ??
    (process.arch === "arm64" ? ["generic", "neon"] : ["generic", "avx2", "avx512"]);
  const rows: Row[] = [];
  for (const level of levels) {
    const child = spawnSync(process.execPath, [...process.argv.slice(1), "--this-level"], {
      env: { ...process.env, DS4_CPU_ISA: level },
      encoding: "utf8",
      maxBuffer: 1 << 24,
    });
    if (child.status === 0) rows.push(...(JSON.parse(child.stdout) as Row[]));
    else
      console.error(
        `${level}: ${child.stderr.split("\n").find((line) => line.includes("Error")) ?? "failed"}`,
      );
  }
  return rows;
}

function table(rows: Row[]): string {
  const lines = [
    ["level", "threads", "type", "decode GB/s", "of read", "prefill GMAC/s", "of peak", "pack GB/s"],
  ];
  for (const row of rows) {
    lines.push([
      row.level,
      String(row.threads),
      row.type,
      (row.decode / 1e9).toFixed(2),
      `${((100 * row.decode) / row.readBandwidth).toFixed(0)} %`,
      (row.prefill / 1e9).toFixed(1),
      `${((100 * row.prefill) / row.prefillPeak).toFixed(0)} %`,
      (row.pack / 1e9).toFixed(2),
    ]);
  }
  return textTable("lrlrrrrr", lines).join("\n");
}

if (values["this-level"]) {
  console.log(JSON.stringify(measureThisLevel()));
} else {
  const rows = measureLevels();
  if (values.json)
    console.log(JSON.stringify({ cpu: cpus()[0]?.model, date: new Date().toISOString(), rows }, null, 2));
  else {
    const read = [...new Map(rows.map((row) => [row.threads, row.readBandwidth])).entries()];
    console.log(
      `${cpus()[0]?.model}, ${cpus().length} cores; plain read ${read.map(([t, b]) => `${(b / 1e9).toFixed(1)} GB/s on ${t}`).join(", ")} threads\n`,
    );
    console.log(table(rows));
  }
}
