// Valid files: every value type, tensors in any order, version 2, large token lists, offsets beyond 4 GiB.
import { closeSync, ftruncateSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { buildGguf, GgufBytes, sampleMetadata, sampleTensors } from "../../test/fixtures/gguf-builder.ts";
import { expectLinear } from "../../test/fixtures/growth.ts";
import type { MetadataValue } from "./gguf-file.ts";
import { encodeHeader } from "./header-encoder.ts";
import { memoryByteSource } from "./memory-source.ts";
import { openGguf } from "./open-gguf.ts";
import { parseGguf } from "./parse-gguf.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "ds4-gguf-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe("parseGguf", () => {
  it("reads every value type as it was written, U+FEFF and NUL included", () => {
    const metadata = sampleMetadata();
    const file = parseGguf(memoryByteSource(buildGguf(metadata).bytes));
    expect([...file.metadata]).toEqual([...metadata]);
    expect(file).toMatchObject({ version: 3, alignmentBytes: 64, name: "memory", parts: ["memory"] });
  });

  it("reads each tensor's bytes, whole, in part and into the caller's memory", () => {
    const tensors = sampleTensors();
    const file = parseGguf(memoryByteSource(buildGguf(sampleMetadata(), tensors).bytes));
    expect(file.tensors.map(({ name, dims }) => ({ name, dims }))).toEqual(
      tensors.map(({ name, dims }) => ({ name, dims })),
    );
    for (const { name, data } of tensors) {
      const tensor = file.tensor(name)!;
      expect(file.readTensor(tensor)).toEqual(data);
      expect(file.readTensor(tensor, 3, 5)).toEqual(data.slice(3, 8));
      const target = new Uint8Array(4);
      file.readTensorInto(tensor, target, data.length - 4);
      expect(target).toEqual(data.slice(-4));
    }
    expect(file.tensor("absent")).toBeUndefined();
  });

  it("refuses to read beyond a tensor, even where the file goes on", () => {
    const file = parseGguf(memoryByteSource(buildGguf(sampleMetadata(), sampleTensors()).bytes));
    const [tensor] = file.tensors;
    expect(() => file.readTensor(tensor, 40, 9)).toThrow(/has 48 bytes; 9 bytes from 40/);
    expect(() => file.readTensorInto(tensor, new Uint8Array(1), -1)).toThrow(/asked for/);
  });

  it("accepts tensors whose offsets are not in order", () => {
    const out = new GgufBytes().header(2, 0).tensorInfo("late", [2], 26, 32).tensorInfo("early", [1], 26, 0);
    const bytes = out.pad(32).u32(7).pad(32).u32(8).u32(9).finish();
    const file = parseGguf(memoryByteSource(bytes));
    expect(file.readTensor(file.tensor("early")!)[0]).toBe(7);
    expect([...file.readTensor(file.tensor("late")!)]).toEqual([8, 0, 0, 0, 9, 0, 0, 0]);
  });

  it("reads strings that straddle its read window", () => {
    const text = "中".repeat(500_000); // 1.5 MB: longer than one window
    const metadata = new Map<string, MetadataValue>([
      ["a", { type: "string", value: "x".repeat((1 << 20) - 60) }],
      ["b", { type: "string", value: text }],
      ["c", { type: "array", elementType: "u32", values: new Uint32Array(400_000).fill(5) }],
      ["d", { type: "u64", value: 6n }],
    ]);
    const file = parseGguf(memoryByteSource(buildGguf(metadata).bytes));
    expect(file.metadata.get("b")).toEqual({ type: "string", value: text });
    expect(file.metadata.get("c")).toEqual(metadata.get("c"));
    expect(file.metadata.get("d")).toEqual({ type: "u64", value: 6n });
  });

  it("parses a header of 129,280 tokens and as many merges in time that grows with them", () => {
    const words = (count: number) => Array.from({ length: count }, (_, index) => `Ġword${index} ü`);
    const metadata = (count: number) =>
      new Map<string, MetadataValue>([
        ["tokenizer.ggml.tokens", { type: "array", elementType: "string", values: words(count) }],
        ["tokenizer.ggml.merges", { type: "array", elementType: "string", values: words(count) }],
        ["tokenizer.ggml.token_type", { type: "array", elementType: "i32", values: new Int32Array(count) }],
      ]);
    const parsed = (count: number) => parseGguf(memoryByteSource(encodeHeader(metadata(count), []).header));
    const TOKENS = 129_280;
    expect(parsed(TOKENS).metadata).toEqual(metadata(TOKENS));
    expectLinear(TOKENS, parsed);
  });
});

describe("openGguf", () => {
  it("reads tensors beyond 4 GiB of a file", () => {
    const path = join(folder, "large.gguf");
    const declarations = [
      { name: "hole", type: "F32" as const, dims: [2 ** 20, 1300] }, // 5.08 GiB that are never written
      { name: "end", type: "I32" as const, dims: [2] },
    ];
    const { header, tensors, fileBytes } = encodeHeader(new Map(), declarations);
    expect(tensors[1].offsetBytes).toBeGreaterThan(2 ** 32);
    const fd = openSync(path, "w");
    ftruncateSync(fd, fileBytes);
    writeSync(fd, header, 0, header.length, 0);
    writeSync(fd, Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8), 0, 8, tensors[1].offsetBytes);
    closeSync(fd);
    const file = openGguf(path);
    expect(file.sizeBytes).toBe(fileBytes);
    expect([...file.readTensor(file.tensor("end")!)]).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect([...file.readTensor(file.tensor("hole")!, 2 ** 32 + 5, 3)]).toEqual([0, 0, 0]);
    file.close();
    expect(() => file.readTensor(file.tensor("end")!)).toThrow(/after it was closed/);
  });

  it("tells a missing file, a folder and an empty file apart", () => {
    expect(() => openGguf(join(folder, "absent.gguf"))).toThrow(/cannot open .*absent\.gguf.*ENOENT/);
    expect(() => openGguf(folder)).toThrow(/expected a file, found a folder/);
    writeFileSync(join(folder, "empty.gguf"), "");
    expect(() => openGguf(join(folder, "empty.gguf"))).toThrow(/only 0 bytes/);
  });

  it("says so when the file shrinks after it was opened", () => {
    const path = join(folder, "shrinks.gguf");
    writeFileSync(path, buildGguf(sampleMetadata(), sampleTensors()).bytes);
    const file = openGguf(path);
    writeFileSync(path, "");
    expect(() => file.readTensor(file.tensors[0])).toThrow(/truncated after opening/);
    file.close();
  });
});
