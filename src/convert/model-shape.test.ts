// The tensor tables against the published ones: every name, type, dims and size.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { nanoModelPath } from "../../test/fixtures/nano-model.ts";
import { type GgmlType, rowBytes } from "../blocks/ggml-types.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import { readModelSpec } from "../model/spec-reader.ts";
import { firstLayers, modelTensors, shapeSpec } from "./model-shape.ts";
import { firstLateLayer, type Recipe, recipeType } from "./recipe.ts";

interface ManifestTensor {
  name: string;
  dims: number[];
  type: GgmlType;
  bytes: number;
}

const MANIFESTS = join(import.meta.dirname, "..", "..", "..", "shared", "docs");

function typedTable(recipe: Recipe): ManifestTensor[] {
  const spec = shapeSpec("flash");
  return modelTensors(spec).map(({ name, dims }) => {
    const type = recipeType(recipe, name, spec.layerCount);
    const rows = dims.slice(1).reduce((product, dim) => product * dim, 1);
    return { name, dims: [...dims], type, bytes: rowBytes(type, dims[0]) * rows };
  });
}

describe("the table of V4-Flash", () => {
  it.each(["q2", "q2-q4", "q4"] as const)("equals the published one of %s", (recipe) => {
    const manifest = JSON.parse(readFileSync(join(MANIFESTS, `manifest-${recipe}.json`), "utf8"));
    const published = manifest.tensors.map(({ name, dims, type, bytes }: ManifestTensor) => ({
      name,
      dims,
      type,
      bytes,
    }));
    const table = typedTable(recipe);
    expect(table).toEqual(published);
    expect(table.reduce((total, { bytes }) => total + bytes, 0)).toBe(manifest.tensor_bytes);
  });

  it("has no loss in mxfp4 and only floats in f32", () => {
    const types = new Map(typedTable("mxfp4").map(({ name, type }) => [name, type]));
    const expected = {
      "token_embd.weight": "BF16",
      "output.weight": "BF16",
      "output_hc_fn.weight": "F32",
      "blk.2.attn_compressor_ape.weight": "F32",
      "blk.2.attn_compressor_kv.weight": "BF16",
      "blk.2.indexer.attn_q_b.weight": "BF16",
      "blk.2.indexer.proj.weight": "BF16",
      "blk.2.ffn_gate_inp.weight": "F32",
      "blk.2.ffn_down_exps.weight": "MXFP4",
      "blk.2.ffn_down_shexp.weight": "BF16",
      "blk.3.exp_probs_b.bias": "F32",
    };
    for (const [name, type] of Object.entries(expected)) expect(types.get(name), name).toBe(type);
    expect(new Set(typedTable("f32").map(({ type }) => type))).toEqual(new Set(["F32", "I32"]));
  });
});

describe("the table of nano", () => {
  it("equals the converted checkpoint's, spec and tensors", () => {
    const file = openGguf(nanoModelPath());
    try {
      const spec = shapeSpec("nano");
      expect({ ...readModelSpec(file), name: spec.name }).toEqual(spec);
      const sorted = (tensors: readonly { name: string; dims: readonly number[] }[]) =>
        tensors.map(({ name, dims }) => `${name} ${dims}`).sort();
      expect(sorted(modelTensors(spec))).toEqual(sorted(file.tensors));
    } finally {
      file.close();
    }
  });
});

it("cuts a model to its first layers", () => {
  const four = firstLayers(shapeSpec("flash"), 4);
  expect(four.layers.map(({ compressRatio, hashRouted }) => [compressRatio, hashRouted])).toEqual([
    [0, true],
    [0, true],
    [4, true],
    [128, false],
  ]);
  const whole = modelTensors(shapeSpec("flash"));
  expect(modelTensors(four)).toEqual(whole.filter(({ name }) => !/^blk\.([4-9]|\d\d)\./.test(name)));
  expect(firstLayers(shapeSpec("flash"), 2).hashLayerCount).toBe(2);
});

it("keeps the last six of 43 layers at four bits, in proportion, at least two", () => {
  expect([43, 61, 6, 4, 1].map(firstLateLayer)).toEqual([37, 52, 4, 2, 0]);
});
