// The matrix kernels on the device against the addon's CPU kernels: the same packed bytes, the same int8 activations, so
// that only the order of float32 sums differs. Bounds: largest difference over largest expected value.
import { expertsDown, expertsUp, groupByExpert } from "../../src/backend/cuda/expert-products.ts";
import { expertGroupsBytes, quantizedInputBytes } from "../../src/backend/cuda/matrix-plans.ts";
import { embed, multiply, multiplyGroups } from "../../src/backend/cuda/matrix-steps.ts";
import { type GgmlType, ggmlType } from "../../src/blocks/ggml-types.ts";
import { PACKABLE_TYPES, RARE_TYPES } from "../native/random-blocks.ts";
import { gaussianValues, mulberry32 } from "../random-values.ts";
import { type CheckBench, type CheckRow, type KernelCheck, largestError } from "./kernel-check.ts";
import { type MatrixPair, randomMatrix } from "./random-matrix.ts";

/** Float32 sums in another order. */
const SUMS = 1e-5;
/** SwiGLU of such sums: what the clamps cut off and the mins took away is missing from the largest value. */
const ACTIVATED = 1e-4;
/** After requantizing values that differ in their last bits: a rounding step of int8 here and there. */
const REQUANTIZED = 5e-3;
const TOKEN_COUNTS = [1, 2, 5, 8, 9, 16, 17, 64, 130, 512];
const ALL_TYPES: readonly GgmlType[] = [...PACKABLE_TYPES, ...RARE_TYPES];

function withMatrices(pairs: readonly MatrixPair[], run: () => CheckRow[]): CheckRow[] {
  try {
    return run();
  } finally {
    for (const { arena } of pairs) arena.close();
  }
}

/** Two matrices of a type and one of float32 in one step; ragged rows. */
function checkMultiply(bench: CheckBench, type: GgmlType): CheckRow[] {
  const cols = ggmlType(type).blockValues === 256 ? 1024 : ggmlType(type).blockValues === 32 ? 1056 : 1030;
  const shapes = [
    [1, 328, cols],
    [1, 21, cols],
  ] as const;
  const pairs = [
    ...shapes.map((shape, i) => randomMatrix(bench, type, shape, 10 + i)),
    randomMatrix(bench, "F32", [1, 24, cols], 30),
  ];
  return withMatrices(pairs, () =>
    TOKEN_COUNTS.flatMap((tokens) => {
      const x = gaussianValues(tokens * cols, tokens);
      const expected = pairs.map(({ device }) => new Float32Array(tokens * device.rows));
      bench.cpu.multiply(
        bench.workspace,
        tokens,
        x,
        pairs.map(({ host }) => host),
        expected,
      );
      const outs = expected.map((values) => bench.room(values.byteLength));
      const input = { buffer: bench.room(quantizedInputBytes(tokens, cols)) };
      const devices = pairs.map(({ device }) => device);
      multiply(bench.ctx, tokens, bench.up(x), cols, devices, outs, input);
      return expected.map((values, i) => ({
        name: `${type} ${tokens} x [${devices[i].rows}, ${cols}]${i === 2 ? " F32 beside" : ""}`,
        error: largestError(bench.floats(outs[i], values.length), values),
        bound: SUMS,
      }));
    }),
  );
}

/** Few rows and many columns: blocks, or the warps of a block, share the columns. */
function checkSplit(bench: CheckBench, type: GgmlType): CheckRow[] {
  const cols = 16384;
  const pair = randomMatrix(bench, type, [1, 24, cols], 5);
  return withMatrices([pair], () =>
    [1, 3, 8, 9, 16, 70].map((tokens) => {
      const x = gaussianValues(tokens * cols, tokens);
      const expected = new Float32Array(tokens * 24);
      bench.cpu.multiply(bench.workspace, tokens, x, [pair.host], [expected]);
      const out = bench.room(expected.byteLength);
      const input = { buffer: bench.room(quantizedInputBytes(tokens, cols)) };
      // Twice: the arrival counts are as before.
      for (let i = 0; i < 2; i++) multiply(bench.ctx, tokens, bench.up(x), cols, [pair.device], [out], input);
      const error = largestError(bench.floats(out, expected.length), expected);
      return { name: `${type} split ${tokens} x [24, ${cols}]`, error, bound: SUMS };
    }),
  );
}

function checkGroups(bench: CheckBench, type: GgmlType): CheckRow[] {
  const [groups, rank, cols] = [4, 144, 512];
  const pair = randomMatrix(bench, type, [1, groups * rank, cols], 3);
  return withMatrices([pair], () =>
    [1, 3, 16, 17, 70].map((tokens) => {
      const x = gaussianValues(tokens * groups * cols, tokens);
      const expected = new Float32Array(tokens * groups * rank);
      bench.cpu.multiplyGroups(bench.workspace, tokens, groups, pair.host, x, expected);
      const out = bench.room(expected.byteLength);
      const input = { buffer: bench.room(quantizedInputBytes(tokens * groups, cols)) };
      multiplyGroups(bench.ctx, tokens, groups, pair.device, bench.up(x), out, input);
      const error = largestError(bench.floats(out, expected.length), expected);
      return { name: `${type} groups ${tokens}`, error, bound: SUMS };
    }),
  );
}

function checkEmbed(bench: CheckBench, type: GgmlType): CheckRow[] {
  const [tokens, copies, rows, cols] = [5, 4, 50, 768];
  const pair = randomMatrix(bench, type, [1, rows, cols], 4);
  return withMatrices([pair], () => {
    const ids = Int32Array.of(0, 49, 17, 16, 31);
    const expected = new Float32Array(tokens * copies * cols);
    bench.cpu.embed(bench.workspace, tokens, copies, pair.host, ids, expected);
    const out = bench.room(expected.byteLength);
    embed(bench.ctx, tokens, copies, pair.device, bench.up(ids), out);
    const error = largestError(bench.floats(out, expected.length), expected);
    return [{ name: `${type} embed`, error, bound: 1e-6 }];
  });
}

type Host = MatrixPair["host"];
type SixHosts = [Host, Host, Host, Host, Host, Host];

interface ExpertTypes {
  gate: GgmlType;
  up: GgmlType;
  down: GgmlType;
  shared: GgmlType;
}

/** Expert 1 gets nothing, expert 2 at least every other token. */
function randomIds(tokens: number, used: number, experts: number): Int32Array {
  const random = mulberry32(tokens);
  return Int32Array.from({ length: tokens * used }, (_, slot) => {
    const token = Math.floor(slot / used);
    if (slot % used === 0 && token % 2 === 0) return 2;
    return 3 + ((random() + slot) % (experts - 3));
  });
}

function checkExperts(bench: CheckBench, types: ExpertTypes): CheckRow[] {
  const { cpu, workspace, ctx } = bench;
  const [experts, used, hidden, inner] = [23, 3, 512, 256];
  const up3 = [experts, inner, hidden] as const;
  const [gate, up, down] = [
    randomMatrix(bench, types.gate, up3, 100),
    randomMatrix(bench, types.up, up3, 200),
    randomMatrix(bench, types.down, [experts, hidden, inner], 300),
  ];
  const [sharedGate, sharedUp] = [1, 2].map((seed) =>
    randomMatrix(bench, types.shared, [1, inner, hidden], seed),
  );
  const sharedDown = randomMatrix(bench, types.shared, [1, hidden, inner], 3);
  const all = { gate, up, down, sharedGate, sharedUp, sharedDown };
  const pairs = Object.values(all);
  const hosts = pairs.map(({ host }) => host) as SixHosts;
  const devices = {
    ...{ gate: gate.device, up: up.device, down: down.device },
    ...{ sharedGate: sharedGate.device, sharedUp: sharedUp.device, sharedDown: sharedDown.device },
  };
  const name = `${types.gate}/${types.up}/${types.down} + ${types.shared}`;
  return withMatrices(pairs, () =>
    [1, 2, 16, 17, 130].flatMap((tokens) => {
      const x = gaussianValues(tokens * hidden, tokens).map((value) => value * 0.2);
      const ids = randomIds(tokens, used, experts);
      const weights = Float32Array.from(ids, (id, slot) => ((id * 7 + slot) % 11) / 11);
      const h = new Float32Array(tokens * used * inner);
      const sharedH = new Float32Array(tokens * inner);
      const out = new Float32Array(tokens * hidden);
      cpu.expertsUp(workspace, ...hosts, tokens, used, 0.5, 0.4, x, ids, h, sharedH);
      cpu.expertsDown(workspace, ...hosts, tokens, used, h, sharedH, weights, out);
      const sizes = { tokens, used, experts, hidden, inner, sharedInner: inner };
      const routing = { buffer: bench.room(expertGroupsBytes(sizes)) };
      const [dIds, dX, dW] = [bench.up(ids), bench.up(x), bench.up(weights)];
      const [dH, dShared, dOut] = [h, sharedH, out].map((values) => bench.room(values.byteLength));
      groupByExpert(ctx, dIds, tokens, used, experts, routing);
      expertsUp(ctx, devices, tokens, used, 0.5, 0.4, dX, dIds, routing, dH, dShared);
      const row = (what: string, found: Float32Array, expected: Float32Array, bound: number): CheckRow => ({
        name: `${name} ${what} ${tokens}`,
        error: largestError(found, expected),
        bound,
      });
      const rows = [
        row("h", bench.floats(dH, h.length), h, ACTIVATED),
        row("shared h", bench.floats(dShared, sharedH.length), sharedH, ACTIVATED),
      ];
      expertsDown(ctx, devices, tokens, used, dH, dShared, dW, routing, dOut);
      rows.push(row("out", bench.floats(dOut, out.length), out, REQUANTIZED));
      // The CPU's own h: no requantizing of other values.
      expertsDown(ctx, devices, tokens, used, bench.up(h), bench.up(sharedH), dW, routing, dOut);
      return [...rows, row("down", bench.floats(dOut, out.length), out, SUMS)];
    }),
  );
}

const EXPERT_TYPES: readonly ExpertTypes[] = [
  { gate: "IQ2_XXS", up: "IQ2_XXS", down: "Q2_K", shared: "Q8_0" },
  { gate: "Q4_K", up: "Q4_K", down: "Q4_K", shared: "Q8_0" },
  { gate: "MXFP4", up: "MXFP4", down: "MXFP4", shared: "BF16" },
  { gate: "Q2_K", up: "Q4_K", down: "Q3_K", shared: "F16" },
  { gate: "F16", up: "Q8_0", down: "Q8_0", shared: "Q4_K" },
];

/** All checks of this area. */
export const checks: readonly KernelCheck[] = [
  ...ALL_TYPES.map((type) => ({
    name: `multiply ${type}`,
    run: (bench: CheckBench) => checkMultiply(bench, type),
  })),
  ...(["F16", "Q8_0", "Q2_K", "Q4_K", "IQ2_XXS"] as const).map((type) => ({
    name: `split ${type}`,
    run: (bench: CheckBench) => checkSplit(bench, type),
  })),
  ...ALL_TYPES.map((type) => ({
    name: `groups ${type}`,
    run: (bench: CheckBench) => checkGroups(bench, type),
  })),
  ...ALL_TYPES.map((type) => ({
    name: `embed ${type}`,
    run: (bench: CheckBench) => checkEmbed(bench, type),
  })),
  ...EXPERT_TYPES.map((types) => ({
    name: `experts ${types.gate}`,
    run: (bench: CheckBench) => checkExperts(bench, types),
  })),
];
