// How fast the matrix kernels are, over rotating weights that do not fit in the cache.
import { expertsDown, expertsUp, groupByExpert } from "../../src/backend/cuda/expert-products.ts";
import type { DeviceMatrix } from "../../src/backend/cuda/matrix.ts";
import { expertGroupsBytes, quantizedInputBytes } from "../../src/backend/cuda/matrix-plans.ts";
import { multiply } from "../../src/backend/cuda/matrix-steps.ts";
import { type GgmlType, ggmlType, rowBytes } from "../../src/blocks/ggml-types.ts";
import { PACKABLE_TYPES } from "../native/random-blocks.ts";
import { gaussianValues } from "../random-values.ts";
import type { CheckBench } from "./kernel-check.ts";
import type { BenchRow, Meter } from "./meter.ts";
import { randomMatrix } from "./random-matrix.ts";

const COPIES_BYTES = 256 * 2 ** 20;
/** Formats whose products are float ones. */
const FLOAT_TYPES: readonly GgmlType[] = ["F32", "F16", "BF16", "MXFP4"];

/** The same random bytes in `slices` slices: what is measured does not depend on them. */
function repeatedMatrix(
  bench: CheckBench,
  type: GgmlType,
  [slices, rows, cols]: readonly [number, number, number],
): DeviceMatrix {
  const one = randomMatrix(bench, type, [1, rows, cols], 7);
  one.arena.close();
  const { sliceBytes } = one.device;
  const buffer = bench.room(slices * sliceBytes);
  for (let slice = 0; slice < slices; slice++) {
    bench.ctx.stream.copy(buffer.slice(slice * sliceBytes, sliceBytes), one.device.buffer);
  }
  return { ...one.device, slices, buffer };
}

function measureDense(
  meter: Meter,
  type: GgmlType,
  shape: readonly [rows: number, cols: number],
  tokenCounts: readonly number[],
): BenchRow[] {
  const { bench } = meter;
  const [rows, cols] = shape;
  const bytes = rows * rowBytes(type, cols);
  const copies = Math.max(2, Math.ceil(COPIES_BYTES / bytes));
  const all = repeatedMatrix(bench, type, [Math.min(copies, 512), rows, cols]);
  const parts = Array.from({ length: all.slices }, (_, i) => ({
    ...all,
    slices: 1,
    buffer: all.buffer.slice(i * all.sliceBytes, all.sliceBytes),
  }));
  return tokenCounts.map((tokens) => {
    const x = bench.up(gaussianValues(tokens * cols, 3));
    const out = bench.room(4 * tokens * rows);
    const input = { buffer: bench.room(quantizedInputBytes(tokens, cols)) };
    const call = (turn: number) =>
      multiply(bench.ctx, tokens, x, cols, [parts[turn % parts.length]], [out], input);
    const products = FLOAT_TYPES.includes(type) ? "float16" : "int8";
    const name = `${type} [${rows}, ${cols}] x ${tokens}`;
    return meter.measure({ name, bytes, flops: 2 * tokens * rows * cols, products }, call);
  });
}

/** 48 experts, so that 384 tokens give each as many rows as 2,048 tokens give each of 256. */
function measureExperts(meter: Meter, up: GgmlType, down: GgmlType): BenchRow[] {
  const { bench } = meter;
  const [experts, used, hidden, inner] = [48, 6, 4096, 2048];
  const matrices = {
    gate: repeatedMatrix(bench, up, [experts, inner, hidden]),
    up: repeatedMatrix(bench, up, [experts, inner, hidden]),
    down: repeatedMatrix(bench, down, [experts, hidden, inner]),
    sharedGate: repeatedMatrix(bench, "Q8_0", [1, inner, hidden]),
    sharedUp: repeatedMatrix(bench, "Q8_0", [1, inner, hidden]),
    sharedDown: repeatedMatrix(bench, "Q8_0", [1, hidden, inner]),
  };
  const { ctx } = bench;
  return [1, 8, 384].flatMap((tokens) => {
    const idsOf = (turn: number) =>
      Int32Array.from({ length: tokens * used }, (_, slot) => (slot * 5 + turn * 11) % experts);
    const ids = [0, 1, 2, 3, 4, 5, 6, 7].map((turn) => bench.up(idsOf(turn)));
    const x = bench.up(gaussianValues(tokens * hidden, 3));
    const weights = bench.up(new Float32Array(tokens * used).fill(0.25));
    const [h, sharedH] = [bench.room(4 * tokens * used * inner), bench.room(4 * tokens * inner)];
    const out = bench.room(4 * tokens * hidden);
    const sizes = { tokens, used, experts, hidden, inner, sharedInner: inner };
    const routing = { buffer: bench.room(expertGroupsBytes(sizes)) };
    const group = (turn: number) => groupByExpert(ctx, ids[turn % 8], tokens, used, experts, routing);
    const goUp = (turn: number) =>
      expertsUp(ctx, matrices, tokens, used, 10, 10, x, ids[turn % 8], routing, h, sharedH);
    const goDown = () => expertsDown(ctx, matrices, tokens, used, h, sharedH, weights, routing, out);
    const active = Math.min(experts, tokens * used);
    const values = inner * hidden;
    const bytesOf = (type: GgmlType, count: number) =>
      ((count * values) / ggmlType(type).blockValues) * ggmlType(type).blockBytes;
    const works = {
      up: { bytes: bytesOf(up, 2 * active) + bytesOf("Q8_0", 2), flops: 4 * tokens * (used + 1) * values },
      down: { bytes: bytesOf(down, active) + bytesOf("Q8_0", 1), flops: 2 * tokens * (used + 1) * values },
    };
    const name = `experts ${up}/${down} x ${tokens}`;
    const groupMs = meter.medianMs(group);
    const upMs = meter.medianMs((turn) => {
      group(turn);
      goUp(turn);
    });
    const products = "int8";
    return [
      meter.row({ name: `${name} grouping`, bytes: 0, flops: 0 }, groupMs),
      meter.row({ name: `${name} up`, ...works.up, products }, upMs - groupMs),
      meter.measure({ name: `${name} down`, ...works.down, products }, goDown),
    ];
  });
}

/** Products of matrices. `freed` is called between measurements to free the bench's device memory. */
export function measureMatrices(meter: Meter, freed: () => void): BenchRow[] {
  const rows: BenchRow[] = [];
  const dense = (type: GgmlType, shape: readonly [number, number], tokens: readonly number[]) => {
    rows.push(...measureDense(meter, type, shape, tokens));
    freed();
  };
  for (const type of PACKABLE_TYPES) dense(type, [4096, 4096], [1, 8, 16, 64, 512, 2048]);
  dense("Q8_0", [32_768, 1024], [1, 2048]);
  dense("Q8_0", [4096, 8192], [1, 2048]);
  dense("Q8_0", [1024, 4096], [1, 2048]);
  dense("Q8_0", [129_280, 4096], [1]);
  dense("F16", [24, 16_384], [1, 2048]);
  rows.push(...measureExperts(meter, "IQ2_XXS", "Q2_K"));
  freed();
  rows.push(...measureExperts(meter, "Q4_K", "Q4_K"));
  freed();
  return rows;
}
