// Synthetic files: complete, loadable, runnable, repeatable.
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { createReferenceBackend } from "../backend/reference/reference-backend.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import { readModelSpec } from "../model/spec-reader.ts";
import { bindModel } from "../model/weights.ts";
import { tokenizerFromGguf } from "../tokenizer/gguf-tables.ts";
import { firstLayers, shapeSpec } from "./model-shape.ts";
import { RECIPES } from "./recipe.ts";
import { type SynthOptions, synthesize } from "./synthesize.ts";

const folder = mkdtempSync(join(tmpdir(), "ds4-synth-"));
afterAll(() => rmSync(folder, { recursive: true }));

const NANO: SynthOptions = { spec: shapeSpec("nano"), recipe: "q2", seed: 1 };
const FLASH_4: SynthOptions = {
  spec: firstLayers(shapeSpec("flash"), 4),
  recipe: "q2",
  seed: 1,
  draftLayerCount: 1,
  sparse: true,
};

async function written<T>(
  options: SynthOptions,
  use: (file: GgufFile, path: string) => T,
  name = "m.gguf",
): Promise<T> {
  const path = join(folder, name);
  await synthesize(path, options);
  const file = openGguf(path);
  try {
    return use(file, path);
  } finally {
    file.close();
    rmSync(path);
  }
}

describe("a nano file", () => {
  it.each(RECIPES)("of recipe %s runs, with finite logits that depend on the text", async (recipe) => {
    await written({ ...NANO, recipe }, (file) => {
      expect(bindModel(file).unusedTensors).toEqual([]);
      const tokenizer = tokenizerFromGguf(file);
      const backend = createReferenceBackend(file);
      const kv = backend.createKv(140);
      const tokens = tokenizer.encode("In the beginning there was a long text. ".repeat(7));
      const { logits } = backend.forward([{ kv, tokens: tokens.slice(0, 140), logits: "all" }]);
      expect(logits[0].every(Number.isFinite)).toBe(true);
      const rms = Math.sqrt(logits[0].reduce((sum, value) => sum + value * value, 0) / logits[0].length);
      expect(rms).toBeGreaterThan(0.3);
      expect(rms).toBeLessThan(3);
      const best = new Set(
        Array.from({ length: 140 }, (_, row) => {
          const own = logits[0].subarray(row * 4096, (row + 1) * 4096);
          return own.indexOf(Math.max(...own));
        }),
      );
      expect(best.size).toBeGreaterThan(20);
      kv.close();
      backend.close();
    });
  });

  it("is the same for the same seed only", async () => {
    const bytes = (seed: number) => written({ ...NANO, seed }, (_, path) => readFileSync(path));
    const first = await bytes(1);
    expect((await bytes(1)).equals(first)).toBe(true);
    expect((await bytes(2)).equals(first)).toBe(false);
  });

  it("reads back as the spec it was made from", async () => {
    await written(NANO, (file) => expect(readModelSpec(file)).toEqual(NANO.spec));
  });
});

describe("a file with holes", () => {
  it("has the header and size of the whole file but takes no room", async () => {
    const sizes = await written(FLASH_4, (file, path) => {
      expect(bindModel(file).spec).toEqual(FLASH_4.spec);
      expect(bindModel(file).unusedTensors).toEqual([]);
      return [file.sizeBytes, 512 * statSync(path).blocks];
    });
    expect(sizes[0]).toBeGreaterThan(9e9);
    expect(sizes[1]).toBeLessThan(2e7);
  });

  it("has the metadata of published files", async () => {
    const manifestPath = join(import.meta.dirname, "../../../shared/docs/manifest-q2.json");
    const published: Record<string, { value: unknown }> = JSON.parse(
      readFileSync(manifestPath, "utf8"),
    ).metadata;
    await written({ ...FLASH_4, spec: shapeSpec("flash") }, (file) => {
      for (const [key, { value }] of Object.entries(published)) {
        if (key === "general.alignment" || key === "tokenizer.ggml.merges") continue;
        const own = file.metadata.get(key);
        if (own?.type !== "array") {
          const rounded = typeof value === "number" && own?.type === "f32" ? Math.fround(value) : value;
          expect(own?.value, key).toBe(rounded);
        } else if (Array.isArray(value)) expect(Array.from(own.values as Float32Array), key).toEqual(value);
        else expect(own.values.length, key).toBe((value as { length: number }).length);
      }
    });
  });

  it("has V4's special tokens at their ids and encodes any text", async () => {
    await written(FLASH_4, (file) => {
      const tokenizer = tokenizerFromGguf(file);
      const ids = ["<｜begin▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜place▁holder▁no▁799｜>", "<｜User｜>"];
      expect(ids.map((text) => tokenizer.specialId(text))).toEqual([0, 2, 128799, 128803]);
      const more = ["<|EOT|>", "<｜tool▁sep｜>", "<think>", "</think>", "｜DSML｜"];
      expect(more.map((text) => tokenizer.specialId(text))).toEqual([128805, 128814, 128821, 128822, 128825]);
      const text = "the Café 数 🙂\u0000\n";
      expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
      expect(tokenizer.encode(" the").length).toBe(1);
    });
  });
});

describe("a file that is not finished", () => {
  it("leaves nothing when cancelled", async () => {
    const options: SynthOptions = {
      ...FLASH_4,
      spec: firstLayers(shapeSpec("flash"), 1),
      sparse: false,
      signal: { aborted: true },
    };
    await expect(synthesize(join(folder, "x.gguf"), options)).rejects.toMatchObject({ code: "cancelled" });
    expect(readdirSync(folder)).toEqual([]);
  });

  it("is refused before writing when the disk is too small or the folder missing", async () => {
    const huge: SynthOptions = { spec: shapeSpec("flash"), recipe: "f32", seed: 1 };
    const wide = { ...huge.spec, vocabSize: 2 ** 21, hiddenSize: 2 ** 30 };
    await expect(synthesize(join(folder, "x.gguf"), { ...huge, spec: wide })).rejects.toThrow(
      /needs .* of disk/,
    );
    const missing = synthesize(join(folder, "none", "x.gguf"), NANO);
    await expect(missing).rejects.toMatchObject({ code: "io" });
    expect(readdirSync(folder)).toEqual([]);
  });
});
