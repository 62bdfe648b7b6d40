// Times of calls on the device, beside what the device does at most: a copy of its memory and tensor-core products out of
// registers, both measured in the same run.
import type { DeviceMemory } from "../../src/backend/cuda/device-memory.ts";
import { medianCallMs } from "../../src/backend/cuda/device-timing.ts";
import { textTable } from "../../src/core/text-table.ts";
import type { CheckBench } from "./kernel-check.ts";

/** What the tensor cores multiply. */
export type ProductKind = "float16" | "int8";

/** What a call does. */
export interface Work {
  name: string;
  /** Weights, or rows of keys and values, read once; for a copy, bytes read and written. */
  bytes: number;
  /** Operations: two per multiply-add. */
  flops: number;
  /** Peak to compare with; "float16" by default. */
  products?: ProductKind;
}

/** One measurement. Shares are of the same run's peaks. */
export interface BenchRow {
  name: string;
  milliseconds: number;
  gigabytesPerSecond: number;
  teraflops: number;
  copyShare: number;
  tensorShare: number;
}

const RUNS = 11;
const COPY_BYTES = 2 ** 30;
const PROBE_BLOCKS_PER_MULTIPROCESSOR = 4;
const PROBE_WARPS = 8;
const PROBE_ROUNDS = 4096;
const PROBE_FLOPS = { float16: 8 * 2 * 16 * 8 * 16, int8: 8 * 2 * 16 * 8 * 32 } as const;
const PROBE_KERNELS = { float16: "probe_half_products", int8: "probe_byte_products" } as const;

/** Measures on one device. A long copy keeps it busy while the host queues what is measured: launch gaps stay out. */
export class Meter {
  readonly bench: CheckBench;
  /** The peaks, as rows of their own. */
  readonly peaks: readonly BenchRow[];
  readonly #delay: () => void;
  readonly #copyRate: number;
  readonly #tensorRates: Record<ProductKind, number>;

  /** `memory` keeps two buffers for copies as long as the meter is used. */
  constructor(bench: CheckBench, memory: DeviceMemory) {
    this.bench = bench;
    const [from, to] = ["from", "to"].map((label) => memory.allocate(label, COPY_BYTES));
    this.#delay = () => bench.ctx.stream.copy(to, from);
    const copyMs = this.medianMs(this.#delay);
    this.#copyRate = (2 * COPY_BYTES) / copyMs / 1e6;
    const probe = (kind: ProductKind) => this.#probe(kind, memory);
    const [half, int8] = [probe("float16"), probe("int8")];
    this.#tensorRates = { float16: half.teraflops, int8: int8.teraflops };
    const copy = { name: "device copy", milliseconds: copyMs, gigabytesPerSecond: this.#copyRate };
    this.peaks = [{ ...copy, teraflops: 0, copyShare: 1, tensorShare: 0 }, half, int8];
  }

  /** Median over runs of eight calls in a row, per call. */
  medianMs(call: (turn: number) => void): number {
    return medianCallMs(this.bench.ctx.stream, call, { runs: RUNS, warmUps: 2, before: this.#delay });
  }

  /** A time as rates and shares. */
  row({ name, bytes, flops, products = "float16" }: Work, milliseconds: number): BenchRow {
    const gigabytesPerSecond = bytes / milliseconds / 1e6;
    const teraflops = flops / milliseconds / 1e9;
    const copyShare = gigabytesPerSecond / this.#copyRate;
    const tensorShare = teraflops / this.#tensorRates[products];
    return { name, milliseconds, gigabytesPerSecond, teraflops, copyShare, tensorShare };
  }

  /** Measures a call. */
  measure(work: Work, call: (turn: number) => void): BenchRow {
    return this.row(work, this.medianMs(call));
  }

  #probe(kind: ProductKind, memory: DeviceMemory): BenchRow {
    const { module, stream, device } = this.bench.ctx;
    const out = memory.allocate("probe", 4);
    const blocks = PROBE_BLOCKS_PER_MULTIPROCESSOR * device.multiprocessors;
    const args = [{ p: out }, { i32: PROBE_ROUNDS }];
    const milliseconds = this.medianMs(() =>
      module.launch(stream, PROBE_KERNELS[kind], [blocks, 1, 1], [32 * PROBE_WARPS, 1, 1], 0, args),
    );
    const flops = blocks * PROBE_WARPS * PROBE_ROUNDS * PROBE_FLOPS[kind];
    const rates = { gigabytesPerSecond: 0, teraflops: flops / milliseconds / 1e9 };
    return { name: `${kind} tensor cores`, milliseconds, ...rates, copyShare: 0, tensorShare: 1 };
  }
}

/** The rows as a table. */
export function benchTable(rows: readonly BenchRow[]): string {
  const percent = (share: number) => `${(share * 100).toFixed(0)} %`;
  const cells = rows.map((row) => [
    row.name,
    `${(row.milliseconds * 1000).toFixed(1)} us`,
    `${row.gigabytesPerSecond.toFixed(0)} GB/s`,
    `${percent(row.copyShare)} of copy`,
    `${row.teraflops.toFixed(1)} TFLOP/s`,
    `${percent(row.tensorShare)} of tensor cores`,
  ]);
  return textTable("lrrrrr", cells).join("\n");
}

/** The rows as CSV, one unit per column. */
export function benchCsv(rows: readonly BenchRow[]): string {
  const lines = rows.map((row) =>
    [
      `"${row.name.replaceAll('"', '""')}"`,
      (row.milliseconds * 1000).toFixed(2),
      row.gigabytesPerSecond.toFixed(1),
      row.copyShare.toFixed(4),
      row.teraflops.toFixed(2),
      row.tensorShare.toFixed(4),
    ].join(","),
  );
  return `${["kernel,us,gb_per_s,copy_share,tflop_per_s,tensor_share", ...lines].join("\n")}\n`;
}
