// The CUDA kernels that are no matrix products against the addon's CPU kernels, on the same random inputs; window rings
// and compressed entries rounded alike on both sides. Bounds: largest difference over largest expected value.
import type { RowParts } from "../../src/backend/cuda/half-rows.ts";
import { decodeStateWords } from "../../src/backend/cuda/sequence-plans.ts";
import {
  argmaxRows,
  normRows,
  readHead,
  readStreams,
  ropeTable,
  rotateHeads,
  route,
  storeWindow,
  writeStreams,
} from "../../src/backend/cuda/sequence-steps.ts";
import type { WeightMatrix } from "../../src/backend/native-kernels.ts";
import { gaussianValues, mulberry32 } from "../random-values.ts";
import { attentionChecks } from "./attention-check.ts";
import {
  type CheckBench,
  type CheckRow,
  countDifferent,
  type KernelCheck,
  largestError,
  roundedRows,
} from "./kernel-check.ts";

/** Float32 sums in another order. */
const SUMS = 1e-5;
const TOKEN_COUNTS = [1, 2, 7, 33];
const EPSILON = 1e-6;

/** fn [rows, cols] as a matrix of the addon (float32), for its hyper-connection reads. */
function fnMatrix(
  { cpu, workspace }: CheckBench,
  values: Float32Array,
  rows: number,
  cols: number,
): WeightMatrix {
  const bytes = Math.ceil(rows / 16) * 16 * cols * 4 + 4096;
  const arena = new cpu.WeightArena(bytes);
  const matrix = new cpu.WeightMatrix(arena, 0, 0, 1, rows, cols);
  matrix.packRows(workspace, 0, 0, rows, new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  return matrix;
}

function product(x: Float32Array, weights: Float32Array, cols: number): Float32Array {
  const rows = weights.length / cols;
  const out = new Float32Array((x.length / cols) * rows);
  for (let i = 0; i < out.length; i++) {
    const from = Math.floor(i / rows) * cols;
    let sum = 0;
    for (let c = 0; c < cols; c++) sum += x[from + c] * weights[(i % rows) * cols + c];
    out[i] = sum;
  }
  return out;
}

function checkStreams(bench: CheckBench, tokens: number, n: number, hidden: number): CheckRow[] {
  const { ctx, cpu, workspace } = bench;
  const rows = 2 * n + n * n;
  const cols = n * hidden;
  const streams = gaussianValues(tokens * cols, 1, 3);
  const fn = gaussianValues(rows * cols, 2, 0.05);
  const base = gaussianValues(rows, 3);
  const scale = gaussianValues(3, 4);
  const norm = gaussianValues(hidden, 5);
  const block = gaussianValues(tokens * hidden, 6);
  const x = new Float32Array(tokens * hidden);
  const head = new Float32Array(tokens * hidden);
  const post = new Float32Array(tokens * n);
  const comb = new Float32Array(tokens * n * n);
  const constants = [base, scale, norm, EPSILON, 1e-4, 20, streams] as const;
  cpu.readStreams(workspace, tokens, n, hidden, fnMatrix(bench, fn, rows, cols), ...constants, x, post, comb);
  const headFn = fn.slice(0, n * cols);
  cpu.readHead(workspace, tokens, n, hidden, fnMatrix(bench, headFn, n, cols), ...constants, head);

  const constantsOnDevice = { base: bench.up(base), scale: bench.up(scale), normWeight: bench.up(norm) };
  const read = {
    ...{ n, hidden, ...constantsOnDevice },
    ...{ normEpsilon: EPSILON, hyperEpsilon: 1e-4, iterations: 20 },
  };
  const device = bench.up(streams);
  const out = bench.room(x.byteLength);
  const outHead = bench.room(x.byteLength);
  const outPost = bench.room(post.byteLength);
  const outComb = bench.room(comb.byteLength);
  readStreams(ctx, tokens, read, device, bench.up(product(streams, fn, cols)), out, outPost, outComb);
  readHead(ctx, tokens, read, device, bench.up(product(streams, headFn, cols)), outHead);
  const name = `${tokens} x ${n} x ${hidden}`;
  const results: CheckRow[] = [
    { name: `read x ${name}`, error: largestError(bench.floats(out, x.length), x), bound: 5e-5 },
    { name: `read post ${name}`, error: largestError(bench.floats(outPost, post.length), post), bound: 5e-5 },
    { name: `read comb ${name}`, error: largestError(bench.floats(outComb, comb.length), comb), bound: 5e-5 },
    { name: `read head ${name}`, error: largestError(bench.floats(outHead, x.length), head), bound: 5e-5 },
  ];
  cpu.writeStreams(workspace, tokens, n, hidden, streams, block, post, comb);
  writeStreams(ctx, tokens, n, hidden, device, bench.up(block), bench.up(post), bench.up(comb));
  const written = bench.floats(device, streams.length);
  results.push({ name: `write ${name}`, error: largestError(written, streams), bound: SUMS });
  return results;
}

function checkNorm(bench: CheckBench, rows: number, width: number, weighted: boolean): CheckRow {
  const x = gaussianValues(rows * width, 7, 5);
  const weight = weighted ? gaussianValues(width, 8) : null;
  const device = bench.up(x);
  normRows(bench.ctx, rows, width, device, weight && bench.up(weight), EPSILON);
  bench.cpu.normRows(bench.workspace, rows, width, x, weight, EPSILON);
  const error = largestError(bench.floats(device, x.length), x);
  return { name: `norm ${rows} x ${width}${weighted ? " weighted" : ""}`, error, bound: SUMS };
}

function checkRope(bench: CheckBench): CheckRow {
  const positions = Int32Array.of(0, 1, 2, 127, 128, 5000, 65_535, 100_000, 999_999, 1_000_000);
  const pairs = 32;
  const frequencies = new Float32Array(pairs).map((_, i) => 10_000 ** (-i / pairs));
  const count = positions.length * pairs;
  const cosines = new Float32Array(count);
  const sines = new Float32Array(count);
  bench.cpu.ropeTable(positions.length, pairs, positions, frequencies, cosines, sines);
  const outs = [bench.room(4 * count), bench.room(4 * count)] as const;
  ropeTable(bench.ctx, positions.length, pairs, bench.up(positions), bench.up(frequencies), ...outs);
  const error = Math.max(
    largestError(bench.floats(outs[0], count), cosines),
    largestError(bench.floats(outs[1], count), sines),
  );
  return { name: "rope to 1,000,000", error, bound: 1e-6 };
}

function checkRotation(
  bench: CheckBench,
  tokens: number,
  heads: number,
  dim: number,
  [normalize, inverse]: readonly [boolean, boolean],
): CheckRow {
  const pairs = Math.min(32, dim / 4);
  const rows = gaussianValues(tokens * heads * dim, 9, 2);
  const cosines = gaussianValues(tokens * pairs, 10);
  const sines = gaussianValues(tokens * pairs, 11);
  const device = bench.up(rows);
  const shape = [tokens, heads, dim, pairs] as const;
  const flags = [normalize, EPSILON, inverse] as const;
  rotateHeads(bench.ctx, ...shape, device, bench.up(cosines), bench.up(sines), ...flags);
  bench.cpu.rotateHeads(bench.workspace, ...shape, rows, cosines, sines, ...flags);
  const name = `rotate ${tokens} x ${heads} x ${dim}${normalize ? " normed" : ""}${inverse ? " back" : ""}`;
  return { name, error: largestError(bench.floats(device, rows.length), rows), bound: SUMS };
}

function checkRing(bench: CheckBench, start: number, count: number, parts: RowParts): CheckRow {
  const dim = 64;
  const ringRows = 128 + 33;
  const kv = gaussianValues(count * dim, 12);
  const expected = new Float32Array(ringRows * dim).fill(1);
  const rounded = roundedRows(kv, dim, parts);
  for (let i = 0; i < count; i++) {
    expected.set(rounded.subarray(i * dim, (i + 1) * dim), ((start + i) % ringRows) * dim);
  }
  const ring = bench.upRows(new Float32Array(expected.length).fill(1), dim, parts);
  const state = bench.up(decodeStateWords(start, count, 0));
  storeWindow(bench.ctx, count, dim, ringRows, parts, state, bench.up(kv), ring);
  const error = largestError(bench.rows(ring, expected.length, dim, parts), expected);
  return { name: `ring from ${start}, ${count} rows x ${parts}`, error, bound: 0 };
}

interface RouteCase {
  tokens: number;
  experts: number;
  used: number;
  byTable?: boolean;
  ties?: boolean;
  normalize?: boolean;
}

function checkRoute(bench: CheckBench, route_: RouteCase): CheckRow[] {
  const { tokens, experts, used, byTable = false, ties = false, normalize = true } = route_;
  const logits = gaussianValues(tokens * experts, 13, 4);
  if (ties) logits.set(logits.map((value) => Math.round(value / 2)));
  const bias = byTable ? null : gaussianValues(experts, 14, ties ? 0 : 0.3);
  const vocab = 50;
  const random = mulberry32(15);
  const table = byTable ? new Int32Array(vocab * used).map(() => random() % experts) : null;
  const tokenIds = new Int32Array(tokens).map(() => random() % vocab);
  const ids = new Int32Array(tokens * used);
  const weights = new Float32Array(tokens * used);
  const { ctx, cpu, workspace } = bench;
  const fine = cpu.route(
    workspace,
    ...[tokens, experts, used, vocab, 1.5],
    ...[normalize, logits, bias, table, tokenIds, ids, weights],
  );
  const deviceIds = bench.room(ids.byteLength);
  const deviceWeights = bench.room(weights.byteLength);
  const flag = bench.up(Int32Array.of(0));
  const router = {
    ...{ experts, used, weightsScale: 1.5, normalize },
    ...{ bias: bias && bench.up(bias), table: table && bench.up(table) },
  };
  route(ctx, tokens, router, bench.up(logits), bench.up(tokenIds), deviceIds, deviceWeights, flag, 3);
  const name = `${tokens} of ${experts}, ${used} used${byTable ? ", table" : ""}${ties ? ", ties" : ""}`;
  const found = bench.floats(deviceWeights, weights.length);
  return [
    { name: `route ids ${name}`, error: countDifferent(bench.ints(deviceIds, ids.length), ids), bound: 0 },
    { name: `route weights ${name}`, error: largestError(found, weights), bound: SUMS },
    { name: `route flag ${name}`, error: fine ? bench.ints(flag, 1)[0] : Number.NaN, bound: 0 },
  ];
}

/** A score that is not finite raises the flag with the first mark, and ids stay in range. */
function checkRouteFlag(bench: CheckBench, bad: number): CheckRow {
  const experts = 64;
  const logits = gaussianValues(3 * experts, 16);
  logits[experts + 5] = bad;
  const router = { experts, used: 4, weightsScale: 1, normalize: true, table: null };
  const ids = bench.room(48);
  const flag = bench.up(Int32Array.of(0));
  const zeros = bench.up(new Float32Array(experts));
  const rest = [bench.up(new Int32Array(3)), ids, bench.room(48), flag] as const;
  route(bench.ctx, 3, { ...router, bias: zeros }, bench.up(logits), ...rest, 7);
  route(bench.ctx, 3, { ...router, bias: zeros }, bench.up(logits), ...rest, 9);
  const outside = bench.ints(ids, 12).filter((id) => id < 0 || id >= experts).length;
  const error = bench.ints(flag, 1)[0] === 7 ? outside : 1;
  return { name: `route flag of ${bad}`, error, bound: 0 };
}

function checkArgmax(bench: CheckBench, vocab: number): CheckRow {
  const rows = 4;
  const logits = gaussianValues(rows * vocab, 17).map((value) => Math.fround(Math.round(value * 8) / 8));
  logits[vocab] = Number.NaN;
  logits.fill(Number.NaN, 3 * vocab);
  const expected = new Int32Array(rows);
  for (let row = 0; row < 3; row++) {
    const own = logits.subarray(row * vocab, (row + 1) * vocab);
    const ranks = own.map((value) => (Number.isNaN(value) ? Number.NEGATIVE_INFINITY : value));
    expected[row] = ranks.indexOf(ranks.reduce((best, value) => Math.max(best, value)));
  }
  const out = bench.room(4 * rows);
  const flag = bench.up(Int32Array.of(0));
  argmaxRows(bench.ctx, rows, vocab, bench.up(logits), out, flag, 5);
  const error = countDifferent(bench.ints(out, rows), expected) + (bench.ints(flag, 1)[0] === 5 ? 0 : 1);
  return { name: `argmax of ${vocab}`, error, bound: 0 };
}

/** All checks of this area. */
export const checks: readonly KernelCheck[] = [
  {
    name: "hyper-connections",
    run: (bench) => [
      ...TOKEN_COUNTS.flatMap((tokens) => checkStreams(bench, tokens, 4, 64)),
      ...checkStreams(bench, 2, 4, 4096),
      ...checkStreams(bench, 1, 4, 7168),
      ...checkStreams(bench, 3, 2, 96),
      ...checkStreams(bench, 2, 8, 128),
    ],
  },
  {
    name: "norms and rotation",
    run: (bench) => [
      ...[32, 512, 1024, 4096].flatMap((width) => [
        checkNorm(bench, 7, width, true),
        checkNorm(bench, 1, width, false),
      ]),
      checkRope(bench),
      ...[32, 64, 128, 512].flatMap((dim) => [
        checkRotation(bench, 7, 4, dim, [true, false]),
        checkRotation(bench, 33, 1, dim, [false, false]),
        checkRotation(bench, 2, 64, dim, [false, true]),
      ]),
    ],
  },
  {
    name: "window ring",
    run: (bench) =>
      [0, 1, 127, 128, 5000, 100_000].flatMap((start) =>
        TOKEN_COUNTS.flatMap((n) => [checkRing(bench, start, n, 1), checkRing(bench, start, n, 2)]),
      ),
  },
  {
    name: "router",
    run: (bench) => [
      ...TOKEN_COUNTS.flatMap((tokens) => [
        ...checkRoute(bench, { tokens, experts: 256, used: 6 }),
        ...checkRoute(bench, { tokens, experts: 256, used: 6, byTable: true }),
      ]),
      ...checkRoute(bench, { tokens: 7, experts: 8, used: 2, ties: true }),
      ...checkRoute(bench, { tokens: 7, experts: 384, used: 6, ties: true, normalize: false }),
      ...[Number.NaN, Number.POSITIVE_INFINITY].map((bad) => checkRouteFlag(bench, bad)),
    ],
  },
  { name: "argmax", run: (bench) => [32, 1000, 129_280].map((vocab) => checkArgmax(bench, vocab)) },
  ...attentionChecks,
];
