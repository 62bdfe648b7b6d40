// Importance matrices: both forms read alike, damage refused.
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type ImatrixEntry, readImatrix, writeImatrix } from "./imatrix-file.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "ds4-imatrix-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const DENSE: ImatrixEntry = {
  name: "blk.0.attn_kv.weight",
  sums: Float32Array.of(2, 4, 0, 8),
  counts: Float32Array.of(2),
};
const EXPERTS: ImatrixEntry = {
  name: "blk.0.ffn_up_exps.weight",
  sums: Float32Array.of(1, 2, 0, 0, 9, 6),
  counts: Float32Array.of(1, 0, 3),
};

/** The older form, written here from its description. */
function legacyBytes(entries: { name: string; calls: number; values: number[] }[]): Buffer {
  const i32 = (value: number) => {
    const bytes = Buffer.alloc(4);
    bytes.writeInt32LE(value);
    return bytes;
  };
  const parts = entries.flatMap(({ name, calls, values }) => [
    i32(name.length),
    Buffer.from(name),
    i32(calls),
    i32(values.length),
    Buffer.from(Float32Array.from(values).buffer),
  ]);
  return Buffer.concat([i32(entries.length), ...parts]);
}

test("GGUF form: means per expert, null for experts that never ran and for unknown tensors", () => {
  const path = join(folder, "a.gguf");
  writeImatrix(path, [DENSE, EXPERTS], { datasets: ["text.txt"], chunkCount: 7, chunkTokens: 512 });
  const imatrix = readImatrix(path);
  expect(imatrix.names).toEqual([DENSE.name, EXPERTS.name]);
  expect(imatrix.datasets).toEqual(["text.txt"]);
  expect(imatrix.chunkCount).toBe(7);
  expect(imatrix.importance(DENSE.name, 0, 4, 1)).toEqual(Float32Array.of(1, 2, 0, 4));
  expect(imatrix.importance(EXPERTS.name, 0, 2, 3)).toEqual(Float32Array.of(1, 2));
  expect(imatrix.importance(EXPERTS.name, 1, 2, 3)).toBeNull();
  expect(imatrix.importance(EXPERTS.name, 2, 2, 3)).toEqual(Float32Array.of(3, 2));
  expect(imatrix.importance("blk.9.attn_kv.weight", 0, 4, 1)).toBeNull();
  expect(imatrix.entry(EXPERTS.name)).toEqual(EXPERTS);
  imatrix.close();
});

test("older form: values over calls, one count for all experts, what follows is ignored", () => {
  const path = join(folder, "a.dat");
  const bytes = legacyBytes([
    { name: "blk.0.attn_kv.weight", calls: 4, values: [4, 8] },
    { name: "blk.0.ffn_up_exps.weight", calls: 2, values: [2, 4, 0, 0, 6, 8] },
  ]);
  writeFileSync(path, Buffer.concat([bytes, Buffer.from("\u0007\0\0\0text.txt")]));
  const imatrix = readImatrix(path);
  expect(imatrix.importance("blk.0.attn_kv.weight", 0, 2, 1)).toEqual(Float32Array.of(1, 2));
  expect(imatrix.importance("blk.0.ffn_up_exps.weight", 1, 2, 3)).toBeNull();
  expect(imatrix.importance("blk.0.ffn_up_exps.weight", 2, 2, 3)).toEqual(Float32Array.of(3, 4));
  imatrix.close();
});

test("an entry of another model's shape is refused", () => {
  const path = join(folder, "a.gguf");
  writeImatrix(path, [EXPERTS]);
  const imatrix = readImatrix(path);
  expect(() => imatrix.importance(EXPERTS.name, 0, 3, 3)).toThrow(/6 sums.*3 x 3 inputs/);
  expect(() => imatrix.importance(EXPERTS.name, 0, 3, 2)).toThrow(/another model/);
  imatrix.close();
});

test.each([
  ["empty", Buffer.alloc(0), /found 0 bytes/],
  ["no entries", Buffer.alloc(8), /1 to 65536 entries, found 0/],
  ["a text", Buffer.from("hello, this is text"), /entries, found/],
  ["cut in a name", legacyBytes([{ name: "abc", calls: 1, values: [1] }]).subarray(0, 9), /bytes for a name/],
  [
    "cut in values",
    legacyBytes([{ name: "abc", calls: 1, values: [1, 2] }]).subarray(0, -1),
    /values of "abc"/,
  ],
  ["no values", legacyBytes([{ name: "abc", calls: 1, values: [] }]), /0 values/],
  ["twice", legacyBytes([..."aa"].map((name) => ({ name, calls: 1, values: [1] }))), /occurs twice/],
])("older form, damaged: %s", (_, bytes, message) => {
  const path = join(folder, "bad.dat");
  writeFileSync(path, bytes);
  expect(() => readImatrix(path)).toThrow(expect.objectContaining({ code: "convert" }));
  expect(() => readImatrix(path)).toThrow(message);
});

test("values below zero or not finite are refused when read and when written", () => {
  const path = join(folder, "nan.dat");
  writeFileSync(path, legacyBytes([{ name: "abc", calls: 1, values: [1, Number.NaN] }]));
  const imatrix = readImatrix(path);
  expect(() => imatrix.importance("abc", 0, 2, 1)).toThrow(/holds NaN at index 1/);
  imatrix.close();
  const bad = { ...DENSE, sums: Float32Array.of(1, -1) };
  expect(() => writeImatrix(join(folder, "b.gguf"), [bad])).toThrow(/holds -1/);
  expect(() =>
    writeImatrix(join(folder, "b.gguf"), [{ ...EXPERTS, counts: Float32Array.of(1, 1, 1, 1) }]),
  ).toThrow(/cannot be shared by 4/);
  expect(readdirSync(folder)).toEqual(["nan.dat"]);
});

test("a GGUF file that is no importance matrix is refused", () => {
  const path = join(folder, "a.gguf");
  writeImatrix(path, []);
  expect(() => readImatrix(path)).toThrow(/found none among 0 tensors/);
});
