// Conversion of the nano checkpoint, held against an independent converter's file and an independent loader.
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { NANO_FOLDER } from "../../test/fixtures/damaged-checkpoint.ts";
import { readNanoCheckpoint } from "../../test/fixtures/nano-checkpoint.ts";
import type { GgmlType } from "../blocks/ggml-types.ts";
import { blockFormat } from "../blocks/registry.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import { bindModel } from "../model/weights.ts";
import { type ConvertOptions, type ConvertResult, convertCheckpoint } from "./convert.ts";
import { writeImatrix } from "./imatrix-file.ts";
import { modelTensors, shapeSpec } from "./model-shape.ts";
import { RECIPES, recipeType } from "./recipe.ts";

const REFERENCE = join(import.meta.dirname, "..", "..", "..", "shared", "nano", "nano-mxfp4.gguf");

const folder = mkdtempSync(join(tmpdir(), "ds4-convert-"));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => {
  for (const name of readdirSync(folder)) rmSync(join(folder, name));
});

async function converted<T>(
  options: Omit<ConvertOptions, "folder" | "outPath">,
  use: (file: GgufFile, result: ConvertResult) => T,
): Promise<T> {
  const outPath = join(folder, "out.gguf");
  const result = await convertCheckpoint({ ...options, folder: NANO_FOLDER, outPath });
  const file = openGguf(outPath);
  try {
    return use(file, result);
  } finally {
    file.close();
  }
}

/** Values of a tensor as floats. */
function decoded(type: GgmlType, data: Uint8Array, dims: readonly number[]) {
  const values = new Float32Array(dims.reduce((product, dim) => product * dim, 1));
  blockFormat(type).decode(data, 0, values, 0, values.length);
  return values;
}

describe("mxfp4", () => {
  it("equals the file of an independent converter, bit for bit, in all tensors and keys but the file type", async () => {
    await converted({ recipe: "mxfp4" }, (file, result) => {
      const reference = openGguf(REFERENCE);
      expect(file.tensors).toHaveLength(reference.tensors.length);
      for (const tensor of file.tensors) {
        const other = reference.tensor(tensor.name);
        expect([tensor.name, tensor.type, tensor.dims]).toEqual([other?.name, other?.type, other?.dims]);
        const same = Buffer.compare(file.readTensor(tensor), reference.readTensor(other!)) === 0;
        expect(same, tensor.name).toBe(true);
      }
      // 38 is ggml's number of "mostly MXFP4"; the other converter calls it "mostly F16".
      const metadata = new Map(file.metadata);
      expect(metadata.get("general.file_type")).toEqual({ type: "u32", value: 38 });
      metadata.set("general.file_type", { type: "u32", value: 1 });
      expect(metadata).toEqual(reference.metadata);
      reference.close();
      expect(result).toMatchObject({ tensorCount: 178, skippedDraftTensors: 0, fallbacks: [] });
      expect(result.fileBytes).toBe(readFileSync(result.path).length);
    });
  });
});

describe("f32", () => {
  it("holds the exact values that an independent loader reads", async () => {
    const expected = new Map(readNanoCheckpoint(NANO_FOLDER).tensors.map((tensor) => [tensor.name, tensor]));
    await converted({ recipe: "f32" }, (file) => {
      expect(file.tensors).toHaveLength(expected.size);
      for (const tensor of file.tensors) {
        const { type, data, dims } = expected.get(tensor.name)!;
        const exact = decoded(type, data, dims);
        const found = decoded(tensor.type, file.readTensor(tensor), tensor.dims);
        expect(Buffer.compare(Buffer.from(found.buffer), Buffer.from(exact.buffer)), tensor.name).toBe(0);
      }
    });
  });
});

describe("q8", () => {
  it("stores values within half a step, and says which types it chose", async () => {
    const expected = new Map(readNanoCheckpoint(NANO_FOLDER).tensors.map((tensor) => [tensor.name, tensor]));
    await converted({ recipe: "q8", name: "my nano", threads: 2 }, (file, result) => {
      expect(file.metadata.get("general.name")).toEqual({ type: "string", value: "my nano" });
      expect([...result.typeBytes.keys()].sort()).toEqual(["F16", "F32", "I32", "Q8_0"]);
      for (const name of ["blk.3.ffn_down_exps.weight", "blk.0.attn_q_b.weight", "token_embd.weight"]) {
        const { type, data, dims } = expected.get(name)!;
        const exact = decoded(type, data, dims);
        const tensor = file.tensor(name)!;
        const found = decoded(tensor.type, file.readTensor(tensor), tensor.dims);
        let worst = 0;
        for (let start = 0; start < exact.length; start += 32) {
          const block = exact.subarray(start, start + 32);
          const step = Math.max(...block.map(Math.abs)) / 127;
          block.forEach((value, i) => {
            const error = Math.abs(found[start + i] - value);
            worst = Math.max(worst, error / Math.max(step, 1e-9));
          });
        }
        expect(worst, name).toBeGreaterThan(0);
        expect(worst, name).toBeLessThan(0.6);
      }
    });
  });
});

/** Root mean square of the difference over that of the original. */
function relativeError(found: Float32Array, exact: Float32Array): number {
  let error = 0;
  let total = 0;
  for (let i = 0; i < exact.length; i++) {
    error += (found[i] - exact[i]) ** 2;
    total += exact[i] ** 2;
  }
  return Math.sqrt(error / total);
}

describe("q2-q4", () => {
  it("stores every tensor in the recipe's type, with the error that its bits allow", async () => {
    const expected = new Map(readNanoCheckpoint(NANO_FOLDER).tensors.map((tensor) => [tensor.name, tensor]));
    const worst: Partial<Record<GgmlType, number>> = {};
    await converted({ recipe: "q2-q4", threads: 2 }, (file, { typeBytes }) => {
      expect(bindModel(file).unusedTensors).toEqual([]);
      for (const tensor of file.tensors) {
        expect(tensor.type, tensor.name).toBe(recipeType("q2-q4", tensor.name, 6));
        const { type, data, dims } = expected.get(tensor.name)!;
        const found = decoded(tensor.type, file.readTensor(tensor), tensor.dims);
        const error = relativeError(found, decoded(type, data, dims));
        worst[tensor.type] = Math.max(worst[tensor.type] ?? 0, error);
      }
      expect([...typeBytes.keys()].sort()).toEqual(Object.keys(worst).sort());
    });
    expect(worst).toMatchObject({ F32: 0, I32: 0 });
    const bounds = { F16: 1e-3, Q8_0: 0.01, Q4_K: 0.09, Q2_K: 0.35, IQ2_XXS: 0.5 } as const;
    for (const [type, bound] of Object.entries(bounds)) {
      expect(worst[type as GgmlType], type).toBeLessThan(bound);
      if (type !== "F16") expect(worst[type as GgmlType], type).toBeGreaterThan(bound / 4);
    }
  });
});

describe("recipes on nano", () => {
  it("keep the experts of layers 4 and 5 in Q4_K under q2-q4, or of as many as asked for", () => {
    const types = (late?: number) =>
      modelTensors(shapeSpec("nano"))
        .filter(({ name }) => recipeType("q2-q4", name, 6, late) === "Q4_K")
        .map(({ name }) => name);
    const stacks = (layer: number) =>
      ["gate", "up", "down"].map((part) => `blk.${layer}.ffn_${part}_exps.weight`);
    expect(types()).toEqual([...stacks(4), ...stacks(5)]);
    expect(types(5)).toEqual(stacks(5));
    expect(types(6)).toEqual([]);
  });

  it("name their types for every tensor", () => {
    for (const recipe of RECIPES) {
      for (const { name, dims } of modelTensors(shapeSpec("nano"))) {
        const type = recipeType(recipe, name, 6);
        if (name.endsWith("tid2eid.weight")) expect(type).toBe("I32");
        else if (dims.length === 1) expect(type, name).toBe("F32");
      }
    }
  });
});

describe("the importance matrix", () => {
  it("is used where it has the tensor, and named in the file", async () => {
    const path = join(folder, "nano.imatrix.gguf");
    const sums = Float32Array.from({ length: 16 * 256 }, (_, i) => 1 + (i % 7));
    writeImatrix(path, [{ name: "blk.1.ffn_up_exps.weight", sums, counts: new Float32Array(16).fill(3) }], {
      datasets: ["psalms.txt"],
      chunkCount: 4,
    });
    await converted({ recipe: "q8", imatrixPath: path }, (file, result) => {
      expect(result.importanceTensors).toBe(1);
      const keys = [...file.metadata].filter(([key]) => key.startsWith("quantize.imatrix."));
      expect(Object.fromEntries(keys)).toEqual({
        "quantize.imatrix.file": { type: "string", value: "nano.imatrix.gguf" },
        "quantize.imatrix.dataset": { type: "string", value: "psalms.txt" },
        "quantize.imatrix.entries_count": { type: "i32", value: 1 },
        "quantize.imatrix.chunks_count": { type: "i32", value: 4 },
      });
    });
  });

  it("of another model is refused and leaves no file", async () => {
    const imatrixPath = join(folder, "other.gguf");
    const entry = {
      name: "blk.1.ffn_up_exps.weight",
      sums: new Float32Array(64).fill(1),
      counts: Float32Array.of(1),
    };
    writeImatrix(imatrixPath, [entry]);
    const options = {
      folder: NANO_FOLDER,
      outPath: join(folder, "x.gguf"),
      recipe: "q8",
      imatrixPath,
    } as const;
    await expect(convertCheckpoint(options)).rejects.toThrow(/64 sums.*16 x 256 inputs/);
    expect(readdirSync(folder)).toEqual(["other.gguf"]);
  });
});

describe("the output file", () => {
  const outPath = join(folder, "out.gguf");
  const options: ConvertOptions = { folder: NANO_FOLDER, outPath, recipe: "mxfp4" };

  it("is not there after a cancellation halfway", async () => {
    const controller = new AbortController();
    const shares: number[] = [];
    const conversion = convertCheckpoint({
      ...options,
      signal: controller.signal,
      onProgress: ({ done, total }) => {
        shares.push(done / total);
        if (done > total / 2) controller.abort();
      },
    });
    await expect(conversion).rejects.toMatchObject({ code: "cancelled" });
    expect(shares.at(-1)).toBeGreaterThan(0.5);
    expect(shares.at(-1)).toBeLessThan(0.9);
    expect(readdirSync(folder)).toEqual([]);
  });

  it("is not replaced without force", async () => {
    writeFileSync(outPath, "precious");
    await expect(convertCheckpoint(options)).rejects.toMatchObject({ code: "usage" });
    expect(readFileSync(outPath, "utf8")).toBe("precious");
    const { fileBytes } = await convertCheckpoint({ ...options, force: true });
    expect(readFileSync(outPath).length).toBe(fileBytes);
    expect(readdirSync(folder)).toEqual(["out.gguf"]);
  });

  it("fails as an I/O error when its folder does not exist", async () => {
    const nowhere = join(folder, "no", "out.gguf");
    await expect(convertCheckpoint({ ...options, outPath: nowhere })).rejects.toMatchObject({ code: "io" });
    expect(existsSync(nowhere)).toBe(false);
  });

  it("reports progress that never goes back and ends complete", async () => {
    const seen: number[] = [];
    await convertCheckpoint({ ...options, onProgress: ({ done, total }) => seen.push(done / total) });
    expect(seen.length).toBeGreaterThan(100);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(seen.filter((share) => share === 1)).toHaveLength(1);
  });
});
