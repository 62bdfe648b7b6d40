// Importance gathered from inputs by hand and from a real forward pass, checked by what must hold between tensors.
import { expect, it } from "vitest";
import { tinyModel } from "../../test/fixtures/tiny-model.ts";
import { createReferenceBackend } from "../backend/reference/reference-backend.ts";
import {
  type CollectOptions,
  collectImatrix,
  expertCoverage,
  ImatrixCollector,
  textWindows,
} from "./imatrix-collector.ts";
import type { ImatrixEntry } from "./imatrix-file.ts";

const TOKENS = Int32Array.from({ length: 300 }, (_, index) => 1 + ((index * 37 + (index >> 3)) % 95));
const OPTIONS: CollectOptions = { tokens: TOKENS, bosId: 0, windowTokens: 151, chunkTokens: 64 };

async function collected(options: Partial<CollectOptions> = {}): Promise<Map<string, ImatrixEntry>> {
  const file = tinyModel();
  const backend = createReferenceBackend(file);
  const collector = new ImatrixCollector(file);
  await collectImatrix(backend, collector, { ...OPTIONS, ...options });
  backend.close();
  return new Map(collector.entries().map((entry) => [entry.name, entry]));
}

const total = (values: Float32Array) => values.reduce((sum, value) => sum + value, 0);

it("adds squares per column and expert", () => {
  const collector = new ImatrixCollector(tinyModel()); // experts: 64 columns, 8 of them
  const inputs = Float32Array.from({ length: 128 }, (_, index) => index % 64);
  collector.observe("blk.1.ffn_gate_exps.weight", 5, inputs, 2);
  collector.observe("blk.1.ffn_gate_exps.weight", 5, inputs, 1);
  collector.observe("blk.1.attn_kv.weight", -1, inputs, 2);
  const [experts, dense] = collector.entries();
  expect(Array.from(experts.counts)).toEqual([0, 0, 0, 0, 0, 3, 0, 0]);
  expect(experts.sums[5 * 64 + 7]).toBe(3 * 49);
  expect(total(experts.sums.subarray(0, 5 * 64)) + total(experts.sums.subarray(6 * 64))).toBe(0);
  expect(dense).toMatchObject({ name: "blk.1.attn_kv.weight", counts: Float32Array.of(2) });
  expect(dense.sums[9]).toBe(2 * 81);
});

it("names the tensor whose inputs are not finite or that the file lacks", () => {
  const collector = new ImatrixCollector(tinyModel());
  const bad = new Float32Array(64).fill(1);
  bad[3] = Number.NaN;
  const code = { code: "convert" };
  const observeBad = () => collector.observe("blk.1.ffn_up_exps.weight", 2, bad, 1);
  expect(observeBad).toThrow(expect.objectContaining(code));
  expect(observeBad).toThrow(/blk\.1\.ffn_up_exps\.weight.*expert 2/);
  expect(() => collector.observe("blk.9.attn_kv.weight", -1, bad, 1)).toThrow(expect.objectContaining(code));
});

it("gathers what the matrices of a model were given", async () => {
  const entries = await collected();
  const of = (name: string) => entries.get(`blk.1.${name}.weight`)!;
  const rows = 300 + 2; // two begin tokens
  expect(of("attn_kv").counts[0]).toBe(rows);
  expect(of("attn_output_a").counts[0]).toBe(rows * 2); // two groups of heads
  expect(of("attn_q_a").sums).toEqual(of("attn_kv").sums); // one input
  expect(of("ffn_up_exps")).toMatchObject({
    sums: of("ffn_gate_exps").sums,
    counts: of("ffn_gate_exps").counts,
  });
  expect(total(of("ffn_down_exps").counts)).toBe(rows * 2); // two experts a token
  // Experts and router read the same vectors: each token's twice.
  const columns = 64;
  for (let column = 0; column < columns; column++) {
    let sum = 0;
    for (let expert = 0; expert < 8; expert++) sum += of("ffn_gate_exps").sums[expert * columns + column];
    expect(sum / (2 * of("ffn_gate_inp").sums[column])).toBeCloseTo(1, 4);
  }
  // A normed vector has mean square 1 before its weights.
  const file = tinyModel();
  const norm = new Float32Array(file.readTensor(file.tensor("blk.1.ffn_norm.weight")!).buffer);
  const unweighted = of("ffn_gate_inp").sums.map((value, column) => value / norm[column] ** 2 / rows);
  expect(total(unweighted) / columns).toBeCloseTo(1, 2);
  expect(entries.has("output.weight")).toBe(false); // no logits are computed
  expect(expertCoverage([...entries.values()]).expertCount).toBe(4 * 8);
});

it("does not depend on the chunk size", async () => {
  const [small, large] = [await collected({ chunkTokens: 50 }), await collected({ chunkTokens: 151 })];
  for (const [name, { sums, counts }] of small) {
    const other = large.get(name)!;
    expect(other.counts, name).toEqual(counts);
    const scale = Math.max(...sums);
    const worst = sums.reduce((most, sum, index) => Math.max(most, Math.abs(sum - other.sums[index])), 0);
    expect(worst / scale, name).toBeLessThan(1e-4);
  }
});

it("cuts windows that begin with the begin token, once", () => {
  const windows = (tokens: number[]) =>
    textWindows({ tokens: Int32Array.from(tokens), bosId: 0, windowTokens: 3 }).map((window) => [...window]);
  expect(windows([5, 6, 7])).toEqual([
    [0, 5, 6],
    [0, 7],
  ]);
  expect(windows([0, 5, 6, 0, 7, 8])).toEqual([
    [0, 5, 6],
    [0, 7, 8],
  ]);
  expect(windows([])).toEqual([]);
});

it("counts experts that were never used", () => {
  const entry = (name: string) => ({ name, sums: new Float32Array(4), counts: Float32Array.of(3, 0) });
  const entries = [entry("blk.0.ffn_down_exps.weight"), entry("blk.0.ffn_up_exps.weight")];
  expect(expertCoverage(entries)).toEqual({ expertCount: 2, unseenCount: 1 });
});

it("stops when told to, and refuses an empty text", async () => {
  await expect(collected({ signal: { aborted: true } })).rejects.toMatchObject({ code: "cancelled" });
  await expect(collected({ tokens: new Int32Array(0) })).rejects.toMatchObject({ code: "usage" });
});
