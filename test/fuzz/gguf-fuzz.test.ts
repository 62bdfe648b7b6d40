// A short run of the fuzzer; `node scripts/fuzz-gguf.ts` runs long ones.
import { describe, expect, it } from "vitest";
import { memoryByteSource } from "../../src/gguf/memory-source.ts";
import { parseGguf } from "../../src/gguf/parse-gguf.ts";
import { bindModel } from "../../src/model/weights.ts";
import { tokenizerFromGguf } from "../../src/tokenizer/gguf-tables.ts";
import { buildGguf } from "../fixtures/gguf-builder.ts";
import { fuzzBases } from "./fuzz-bases.ts";
import { fuzzGguf } from "./gguf-fuzz.ts";

describe("damaged GGUF files", () => {
  it("start from files that every reader accepts", () => {
    for (const { name, metadata, tensors } of fuzzBases()) {
      const file = parseGguf(memoryByteSource(buildGguf(metadata, tensors).bytes, name));
      expect(file.tensors).toHaveLength(tensors.length);
      if (name !== "model") continue;
      expect(bindModel(file).layers).toHaveLength(2);
      const tokenizer = tokenizerFromGguf(file);
      expect(tokenizer.encode("hell", { allowSpecial: false })).toHaveLength(1);
    }
  });

  it("give typed errors only, at once and in little memory: 1,500 of them (cases 116-119, 122-129)", () => {
    const { failures, accepted, routes, refused } = fuzzGguf({ count: 1500, seed: 20_251 });
    expect(failures).toEqual([]);
    // The run is worth little unless every route and stage, and both outcomes, occur.
    expect(Math.min(...Object.values(routes))).toBeGreaterThan(100);
    expect(Math.min(...Object.values(accepted))).toBeGreaterThan(15);
    expect(refused).toMatchObject({
      gguf: expect.any(Number),
      tokenizer: expect.any(Number),
      "unsupported-model": expect.any(Number),
    });
  });
});
