// Requantizing GGUF files: what is copied, what changes, what is refused.
import { copyFileSync, linkSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { NANO_FOLDER } from "../../test/fixtures/damaged-checkpoint.ts";
import type { GgmlType } from "../blocks/ggml-types.ts";
import type { GgufFile, MetadataValue } from "../gguf/gguf-file.ts";
import { GgufWriter } from "../gguf/gguf-writer.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import { bindModel } from "../model/weights.ts";
import { convertCheckpoint } from "./convert.ts";
import { parseTypeOverride, type QuantizeOptions, type QuantizeResult, quantizeGguf } from "./quantize.ts";

const inputs = mkdtempSync(join(tmpdir(), "ds4-quantize-in-"));
const folder = mkdtempSync(join(tmpdir(), "ds4-quantize-"));
const exactPath = join(inputs, "nano.gguf");
const floatPath = join(inputs, "nano-f32.gguf");
beforeAll(async () => {
  await convertCheckpoint({ folder: NANO_FOLDER, outPath: exactPath, recipe: "mxfp4", name: "nano" });
  await convertCheckpoint({ folder: NANO_FOLDER, outPath: floatPath, recipe: "f32", name: "nano" });
});
afterAll(() => {
  rmSync(inputs, { recursive: true });
  rmSync(folder, { recursive: true });
});
afterEach(() => {
  for (const name of readdirSync(folder)) rmSync(join(folder, name));
});

async function quantized<T>(
  options: Partial<QuantizeOptions> & Pick<QuantizeOptions, "recipe">,
  use: (file: GgufFile, result: QuantizeResult) => T,
): Promise<T> {
  const outPath = join(folder, "out.gguf");
  const result = await quantizeGguf({ inPath: exactPath, outPath, ...options });
  const file = openGguf(outPath);
  try {
    return use(file, result);
  } finally {
    file.close();
  }
}

const typesOf = (file: GgufFile) => new Map(file.tensors.map(({ name, type }) => [name, type]));

describe("a model", () => {
  it("decoded to F32 is the same file as the checkpoint converted to F32", async () => {
    await quantized({ recipe: "f32" }, (_, result) => {
      expect(readFileSync(result.path).equals(readFileSync(floatPath))).toBe(true);
      expect(result).toMatchObject({ requantizedTensors: 0, copiedTensors: 94 });
    });
  });

  it("comes back bit for bit from F32 to the types that held it without loss", async () => {
    await quantized({ inPath: floatPath, recipe: "mxfp4" }, (file) => {
      const exact = openGguf(exactPath);
      expect(typesOf(file)).toEqual(typesOf(exact));
      for (const tensor of file.tensors) {
        if (tensor.type === "MXFP4") continue; // a block may have two codings of the same values
        const same =
          Buffer.compare(file.readTensor(tensor), exact.readTensor(exact.tensor(tensor.name)!)) === 0;
        expect(same, tensor.name).toBe(true);
      }
      exact.close();
    });
  });

  it("of Q8_0 is complete, runnable by its header, and keeps its other metadata", async () => {
    await quantized({ recipe: "q8" }, (file, result) => {
      expect(bindModel(file).unusedTensors).toEqual([]);
      const exact = openGguf(exactPath);
      expect(file.metadata.get("general.file_type")).toEqual({ type: "u32", value: 7 });
      const rest = (source: GgufFile) => [...source.metadata].filter(([key]) => key !== "general.file_type");
      expect(rest(file)).toEqual(rest(exact));
      exact.close();
      expect(result.requantizedTensors).toBe(0); // MXFP4 is what the checkpoint itself holds
    });
    const again = join(folder, "again.gguf");
    const result = await quantizeGguf({ inPath: join(folder, "out.gguf"), outPath: again, recipe: "mxfp4" });
    expect(result.requantizedTensors).toBe(67); // 18 expert stacks, 8 matrices a layer, the head
  });

  it("keeps tensors of unknown names as they are, and drops the keys of a split", async () => {
    const inPath = join(inputs, "odd.gguf");
    const metadata = new Map<string, MetadataValue>([
      ["general.architecture", { type: "string", value: "deepseek4" }],
      ["split.count", { type: "u16", value: 1 }],
      ["split.no", { type: "u16", value: 0 }],
      ["custom.key", { type: "f64", value: 0.5 }],
    ]);
    const declarations = [
      { name: "strange.weight", type: "BF16", dims: [3, 2] },
      { name: "blk.0.attn_kv.weight", type: "F32", dims: [48, 2] },
      { name: "mtp.0.ffn_gate_exps.weight", type: "F32", dims: [32, 1, 2] },
    ] as const;
    const writer = new GgufWriter(inPath, { metadata, tensors: declarations });
    for (const { name, bytes } of writer.tensors) writer.writeTensor(name, new Uint8Array(bytes).fill(1));
    writer.finish();
    await quantized({ inPath, recipe: "q8" }, (file, result) => {
      expect(Object.fromEntries(typesOf(file))).toEqual({
        "strange.weight": "BF16",
        "blk.0.attn_kv.weight": "F16", // 48 is no multiple of 32
        "mtp.0.ffn_gate_exps.weight": "Q8_0",
      });
      expect(result.fallbacks).toEqual(["blk.0.attn_kv.weight: F16 instead of Q8_0"]);
      expect([...file.metadata.keys()].sort()).toEqual([
        "custom.key",
        "general.architecture",
        "general.file_type",
        "general.quantization_version",
      ]);
    });
  });
});

describe("--tensor-type", () => {
  it("overrides the recipe, patterns included, the last match wins", async () => {
    const overrides = ["blk.*.attn_*=F16", "blk.5.attn_kv.weight=F32", "*ffn_gate_exps.weight=Q8_0"];
    await quantized({ recipe: "mxfp4", overrides: overrides.map(parseTypeOverride) }, (file) => {
      const types = typesOf(file);
      const expected: Record<string, GgmlType> = {
        "blk.0.attn_kv.weight": "F16",
        "blk.4.attn_norm.weight": "F16",
        "blk.5.attn_kv.weight": "F32",
        "blk.5.attn_output_a.weight": "F16",
        "blk.2.ffn_gate_exps.weight": "Q8_0",
        "blk.2.ffn_up_exps.weight": "MXFP4",
        "blk.2.indexer.attn_q_b.weight": "F16", // the pattern reaches over dots
        "blk.2.indexer.proj.weight": "BF16",
        "output.weight": "BF16",
      };
      for (const [name, type] of Object.entries(expected)) expect(types.get(name), name).toBe(type);
    });
  });

  it.each([
    ["blk.9.*=F16", /no tensor of .* is called "blk.9.\*"/],
    ["blk.0.attn_kvx*=F16", /no tensor/],
    ["*.ffn_gate_tid2eid.weight=F16", /is I32 and cannot become F16/],
    ["output.weight=I32", /cannot become I32/],
  ])("%s is refused", async (text, message) => {
    const options = { inPath: exactPath, outPath: join(folder, "o.gguf"), recipe: "q8" } as const;
    const quantization = quantizeGguf({ ...options, overrides: [parseTypeOverride(text)] });
    await expect(quantization).rejects.toMatchObject({
      code: "usage",
      message: expect.stringMatching(message),
    });
    expect(readdirSync(folder)).toEqual([]);
  });

  it.each([["a"], ["=F16"], ["a="], ["a=F17"], ["a=Q3_K"]])("text %s is refused", (text) => {
    expect(() => parseTypeOverride(text)).toThrow(
      /NAME=TYPE|unknown tensor type|can be read but not written/,
    );
  });

  it("types are case-insensitive and names may hold an equals sign", () => {
    expect(parseTypeOverride("a=b=q8_0")).toEqual({ pattern: "a=b", type: "Q8_0" });
  });
});

describe("the output file", () => {
  it("is never the input, not even by another name", async () => {
    const inPath = join(folder, "in.gguf");
    const outPath = join(folder, "same.gguf");
    copyFileSync(exactPath, inPath);
    const bytes = readFileSync(inPath);
    const options = { inPath, recipe: "q8", force: true } as const;
    await expect(quantizeGguf({ ...options, outPath: inPath })).rejects.toThrow(/is the input itself/);
    await expect(quantizeGguf({ ...options, outPath: `${folder}/./in.gguf` })).rejects.toThrow(
      /is the input/,
    );
    linkSync(inPath, outPath); // a hard link: replacing it leaves the input as it was
    await quantizeGguf({ ...options, outPath });
    expect(readFileSync(inPath).equals(bytes)).toBe(true);
  });

  it("is not there after a cancellation", async () => {
    const controller = new AbortController();
    const quantization = quantizeGguf({
      ...{ inPath: exactPath, outPath: join(folder, "o.gguf"), recipe: "q8", signal: controller.signal },
      onProgress: () => controller.abort(),
    });
    await expect(quantization).rejects.toMatchObject({ code: "cancelled" });
    expect(readdirSync(folder)).toEqual([]);
  });
});
