import { describe, expect, test } from "vitest";
import { tinyModel } from "../../test/fixtures/tiny-model.ts";
import { bindModel } from "./weights.ts";

describe("bindModel", () => {
  test("binds every tensor of every layer kind and lists what no role uses", () => {
    const file = tinyModel();
    file.tensors.push({ ...file.tensors[0], name: "blk.9.extra.weight" });
    const model = bindModel(file);
    expect(model.unusedTensors).toEqual(["blk.9.extra.weight"]);
    expect(model.layers[0]).toMatchObject({ compressor: undefined, indexer: undefined, expBias: undefined });
    expect(model.layers[0].tid2eid?.name).toBe("blk.0.ffn_gate_tid2eid.weight");
    expect(model.layers[1].indexer?.compressor.kv.name).toBe("blk.1.indexer_compressor_kv.weight");
    expect(model.layers[2].compressor?.ape.dims).toEqual([64, 128]);
    expect(model.layers[2].indexer).toBeUndefined();
  });

  const names = tinyModel().tensors.map((tensor) => tensor.name);
  test.each(names)("refuses %s when it is missing, misshapen or of an impossible type", (name) => {
    const missing = tinyModel();
    missing.tensors.splice(names.indexOf(name), 1);
    expect(() => bindModel(missing)).toThrow(`tensor "${name}": expected a tensor`);

    const misshapen = tinyModel();
    const at = names.indexOf(name);
    const dims = misshapen.tensors[at].dims;
    misshapen.tensors[at] = { ...misshapen.tensors[at], dims: [...dims.slice(0, -1), dims.at(-1)! + 1] };
    expect(() => bindModel(misshapen)).toThrow(`tensor "${name}": expected dims [${dims.join(", ")}]`);

    const mistyped = tinyModel();
    const type = mistyped.tensors[at].type === "I32" ? "F32" : "I32";
    mistyped.tensors[at] = { ...mistyped.tensors[at], type };
    expect(() => bindModel(mistyped)).toThrow(`tensor "${name}"`);
  });
});
