import { describe, expect, test } from "vitest";
import { tinyModel } from "../../test/fixtures/tiny-model.ts";
import { UnsupportedModelError } from "../core/errors.ts";
import { readModelSpec } from "./spec-reader.ts";

const P = "deepseek4.";

function messageOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    expect(error).toBeInstanceOf(UnsupportedModelError);
    return (error as Error).message;
  }
  throw new Error("expected a refusal");
}

describe("readModelSpec", () => {
  test("takes every number from metadata (case 38)", () => {
    const spec = readModelSpec(tinyModel({ experts: 6, expertsUsed: 3, weightsScale: 1 }));
    expect(spec).toMatchObject({ expertCount: 6, expertUsedCount: 3, expertWeightsScale: 1, layerCount: 4 });
    expect(spec.layers.map((layer) => layer.compressRatio)).toEqual([0, 4, 128, 4]);
    expect(spec.layers.map((layer) => layer.hashRouted)).toEqual([true, false, false, false]);
    expect(spec.layers[1]).toMatchObject({ hasIndexer: true, swigluClampExperts: 10, swigluClampShared: 10 });
  });

  const required = [...tinyModel().metadata.keys()].filter(
    (key) => key.startsWith(P) && key !== `${P}vocab_size`,
  );
  test.each(required)("refuses a file without %s and names the key", (key) => {
    const file = tinyModel();
    file.metadata.delete(key);
    expect(messageOf(() => readModelSpec(file))).toContain(`"${key}"`);
  });

  test("names expert_used_count when it exceeds expert_count (case 38)", () => {
    const file = tinyModel();
    file.metadata.set(`${P}expert_used_count`, { type: "u32", value: 9 });
    const message = messageOf(() => readModelSpec(file));
    expect(message).toContain(`"${P}expert_used_count"`);
    expect(message).toContain("expert_count (8)");
  });

  const contradictions: [string, number][] = [
    ["expert_gating_func", 2],
    ["attention.head_count_kv", 2],
    ["attention.value_length", 32],
    ["attention.output_group_count", 3],
    ["rope.dimension_count", 15],
    ["rope.dimension_count", 34],
    ["expert_group_count", 8],
    ["hyper_connection.sinkhorn_iterations", 0],
    ["hash_layer_count", 5],
    ["block_count", 4_000_000],
  ];
  test.each(contradictions)("refuses %s = %d by name", (key, value) => {
    const file = tinyModel();
    file.metadata.set(P + key, { type: "u32", value });
    expect(messageOf(() => readModelSpec(file))).toContain(`"${P}${key}"`);
  });

  test("accepts the widths and array forms that converters use", () => {
    const file = tinyModel();
    file.metadata.set(`${P}rope.scaling.original_context_length`, { type: "u64", value: 256n });
    const clamps = Float64Array.from([7, 8, 9, 0, 3]);
    file.metadata.set(`${P}swiglu_clamp_exp`, { type: "array", elementType: "f64", values: clamps });
    const ratios = Uint32Array.from([0, 4, 128, 4]);
    file.metadata.set(`${P}attention.compress_ratios`, { type: "array", elementType: "u32", values: ratios });
    const spec = readModelSpec(file);
    expect(spec.rope.yarnOriginalContext).toBe(256);
    expect(spec.layers.map((layer) => layer.swigluClampExperts)).toEqual([7, 8, 9, Number.POSITIVE_INFINITY]);
  });

  test("refuses compress ratios that are too few or unknown", () => {
    for (const values of [
      [0, 4],
      [0, 4, 128, 20],
    ]) {
      const file = tinyModel();
      const key = `${P}attention.compress_ratios`;
      file.metadata.set(key, { type: "array", elementType: "i32", values: Int32Array.from(values) });
      expect(messageOf(() => readModelSpec(file))).toContain(key);
    }
  });

  test("takes the vocabulary from the token list or the embedding when the key is absent", () => {
    const file = tinyModel();
    file.metadata.delete(`${P}vocab_size`);
    expect(readModelSpec(file).vocabSize).toBe(96);
    const values = new Array<string>(50).fill("x");
    file.metadata.set("tokenizer.ggml.tokens", { type: "array", elementType: "string", values });
    expect(readModelSpec(file).vocabSize).toBe(50);
  });

  test("does not count a draft block as a layer, but only when the file holds one", () => {
    const file = tinyModel();
    file.metadata.set(`${P}nextn_predict_layers`, { type: "u32", value: 1 });
    expect(readModelSpec(file).layerCount).toBe(4);
    file.tensors.push({ ...file.tensors[0], name: "blk.3.nextn.eh_proj.weight" });
    expect(readModelSpec(file).layerCount).toBe(3);
  });

  test("refuses other architectures, V4.1, companions and early conversions by name", () => {
    const other = tinyModel();
    other.metadata.set("general.architecture", { type: "string", value: "llama" });
    expect(messageOf(() => readModelSpec(other))).toContain(`"llama"`);
    const next = tinyModel();
    next.metadata.set("general.architecture", { type: "string", value: "deepseek4_1" });
    expect(messageOf(() => readModelSpec(next))).toContain("V4.1");
    const early = tinyModel();
    early.metadata.set(`${P}rope.freq_base_swa`, { type: "f32", value: 160000 });
    expect(messageOf(() => readModelSpec(early))).toContain("freq_base_swa");
    const draft = tinyModel();
    draft.tensors.length = 0;
    draft.tensors.push({ ...tinyModel().tensors[0], name: "mtp.0.e_proj.weight" });
    expect(messageOf(() => readModelSpec(draft))).toContain("companion");
  });
});
