// `ds4 inspect`: the numbers, the text and the JSON, on files built in memory.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterEach, describe, expect, it, vi } from "vitest";
import {
  type BuiltTensor,
  buildGguf,
  sampleMetadata,
  sampleTensors,
} from "../../test/fixtures/gguf-builder.ts";
import type { MetadataValue } from "../gguf/gguf-file.ts";
import { memoryByteSource } from "../gguf/memory-source.ts";
import { parseGguf } from "../gguf/parse-gguf.ts";
import { registerInspect } from "./inspect.ts";
import { inspectReport } from "./inspect-report.ts";
import { formatInspect, inspectJson } from "./inspect-text.ts";

const Q2_K = 10;
const Q4_K = 12;

/** Six layers as in the published q2-q4 files: the last two with Q4_K experts. */
function layeredTensors(): BuiltTensor[] {
  const tensors: BuiltTensor[] = [];
  const add = (name: string, typeId: number, dims: number[], bytes: number) =>
    tensors.push({ name, dims, typeId, data: new Uint8Array(bytes) });
  add("token_embd.weight", 1, [8, 4], 64);
  add("output_norm.weight", 0, [8], 32);
  for (let layer = 0; layer < 6; layer++) {
    const [typeId, block] = layer < 4 ? [Q2_K, 84] : [Q4_K, 144];
    add(`blk.${layer}.attn_kv.weight`, 8, [32, 1], 34);
    add(`blk.${layer}.indexer.proj.weight`, 1, [4], 8);
    add(`blk.${layer}.ffn_gate_exps.weight`, layer < 4 ? 16 : typeId, [256], layer < 4 ? 66 : block);
    add(`blk.${layer}.ffn_up_exps.weight`, layer < 4 ? 16 : typeId, [256], layer < 4 ? 66 : block);
    add(`blk.${layer}.ffn_down_exps.weight`, typeId, [256], block);
    add(`blk.${layer}.ffn_gate_shexp.weight`, 8, [32], 34);
    add(`blk.${layer}.ffn_norm.weight`, 0, [2], 8);
  }
  return tensors;
}

const report = (metadata: Map<string, MetadataValue>, tensors: BuiltTensor[]) =>
  inspectReport(parseGguf(memoryByteSource(buildGguf(metadata, tensors).bytes, "m.gguf")));

afterEach(() => vi.restoreAllMocks());

describe("inspectReport", () => {
  it("adds up counts, bytes and values by type and by class", () => {
    const { types, classes, tensorBytes, tensorCount } = report(sampleMetadata(), layeredTensors());
    const of = (name: string) => [...types, ...classes].find((total) => total.name === name);
    expect(of("Q4_K")).toEqual({ name: "Q4_K", count: 6, bytes: 6 * 144, values: 6 * 256 });
    expect(of("routed experts")).toMatchObject({ count: 18, bytes: 8 * 66 + 4 * 84 + 6 * 144 });
    expect(of("attention")).toMatchObject({ count: 12, bytes: 6 * (34 + 8) });
    expect(of("shared expert")).toMatchObject({ count: 6, bytes: 6 * 34 });
    expect(of("embedding/head")).toMatchObject({ count: 2, bytes: 96 });
    expect(of("other")).toMatchObject({ count: 6, bytes: 48 });
    for (const totals of [types, classes]) {
      expect(totals.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(tensorBytes);
      expect(totals.reduce((sum, { count }) => sum + count, 0)).toBe(tensorCount);
    }
  });

  it("joins neighbouring layers of the same types", () => {
    const { layers } = report(new Map(), layeredTensors());
    expect(layers).toMatchObject([
      { first: 0, last: 3, experts: ["IQ2_XXS", "IQ2_XXS", "Q2_K"], attention: ["Q8_0", "F16"] },
      { first: 4, last: 5, experts: ["Q4_K"] },
    ]);
  });

  it("copes with a file that has no metadata, no tensors and no tokenizer", () => {
    expect(report(new Map(), [])).toMatchObject({
      architecture: null,
      tokenizer: null,
      layers: [],
      types: [],
      tensorBytes: 0,
    });
    expect(formatInspect(report(new Map(), []))).toMatch(/architecture {2}not stated/);
  });
});

describe("formatInspect", () => {
  it("shows every section, arrays abbreviated and long texts cut", () => {
    const metadata = sampleMetadata();
    metadata.set("long.text", { type: "string", value: "y".repeat(5000) });
    metadata.set("long.array", { type: "array", elementType: "i32", values: new Int32Array(43) });
    const text = formatInspect(report(metadata, layeredTensors()), { tensors: true });
    expect(text).toMatch(/format +GGUF v3, alignment 64 bytes/);
    expect(text).toMatch(/tokenizer +4 tokens, 0 merges/);
    expect(text).toMatch(/long\.text +string +"y{80}…"/);
    expect(text).toMatch(/long\.array +i32\[43\] +\[0, 0, 0, 0, 0, 0, … 37 more\]/);
    expect(text).toMatch(/sample\.f32 +f32 +0\.1\n/);
    expect(text).toMatch(/sample\.nested +array\[3\] +\[u32\[2\], string\[2\], array\[0\]\]/);
    expect(text).toMatch(/layers 4-5: experts Q4_K, attention Q8_0/);
    expect(text).toMatch(/Q4_K +6 +864 +0\.0000 +4\.50/);
    expect(text).toMatch(/blk\.5\.ffn_down_exps\.weight +Q4_K +\[256\] +144 +\d+/);
    expect(Math.max(...text.split("\n").map((line) => line.length))).toBeLessThan(200);
  });

  it("lets no control or direction character of the file through", () => {
    const hostile = "\u001b[31m\u009b\u202e\r\n\u0007";
    const metadata = new Map<string, MetadataValue>([
      [`k${hostile}`, { type: "string", value: hostile }],
      ["a", { type: "array", elementType: "string", values: [hostile] }],
      ["general.architecture", { type: "string", value: hostile }],
    ]);
    const tensor = { ...sampleTensors()[1], name: `w${hostile}` };
    const text = formatInspect(report(metadata, [tensor]), { tensors: true });
    expect(text.replaceAll("\n", "")).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202e]/);
    expect(text).toContain("w\\u001b[31m");
  });
});

describe("ds4 inspect", () => {
  async function run(...args: string[]): Promise<string> {
    const folder = mkdtempSync(join(tmpdir(), "ds4-inspect-"));
    const path = join(folder, "m.gguf");
    writeFileSync(path, buildGguf(sampleMetadata(), sampleTensors()).bytes);
    let output = "";
    vi.spyOn(process.stdout, "write").mockImplementation((text) => {
      output += text;
      return true;
    });
    const program = new Command().exitOverride();
    registerInspect(program);
    try {
      await program.parseAsync(["inspect", path, ...args], { from: "user" });
    } finally {
      rmSync(folder, { recursive: true });
    }
    return output;
  }

  it("writes complete JSON: all metadata and tensors, big integers kept", async () => {
    const json = JSON.parse(await run("--json"));
    expect(Object.keys(json.metadata)).toEqual([...sampleMetadata().keys()]);
    expect(json.metadata["sample.ints"]).toEqual({
      type: "array",
      elementType: "i32",
      value: [0, 0, 4, 128],
    });
    expect(json.metadata["sample.u64"]).toEqual({ type: "u64", value: "18446744073709551615" });
    expect(json.metadata["sample.nested"].value).toEqual([[1, 2], ["x", "yz"], []]);
    expect(json.tensors).toHaveLength(4);
    expect(json.tensors[2]).toMatchObject({
      name: "blk.0.ffn_down_exps.weight",
      type: "Q2_K",
      dims: [256, 2, 2],
    });
    expect(json).toMatchObject({ version: 3, alignmentBytes: 64, tokenizer: { tokens: 4 }, tensorCount: 4 });
  });

  it("lists tensors only when asked to", async () => {
    expect(await run()).not.toContain("[256, 2, 2]");
    expect(await run("--tensors")).toContain("[256, 2, 2]");
  });

  it("throws a typed error for a file that cannot be read", async () => {
    const program = new Command().exitOverride();
    registerInspect(program);
    await expect(program.parseAsync(["inspect", "/absent.gguf"], { from: "user" })).rejects.toMatchObject({
      code: "io",
    });
    expect(inspectJson(report(new Map(), []))).toContain('"metadata":{}');
  });
});
