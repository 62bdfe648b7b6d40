// The writer: what it writes can be read, by our reader and by another; what fails leaves nothing behind.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { GGUFValueType, gguf } from "@huggingface/gguf";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { sampleMetadata } from "../../test/fixtures/gguf-builder.ts";
import type { GgmlType } from "../blocks/ggml-types.ts";
import { ggmlType } from "../blocks/ggml-types.ts";
import type { MetadataValue } from "./gguf-file.ts";
import { GgufWriter } from "./gguf-writer.ts";
import { openGguf } from "./open-gguf.ts";

const disk = vi.hoisted(() => ({ writesUntilFull: Number.POSITIVE_INFINITY, shortWrites: false }));
vi.mock("node:fs", async (original) => {
  const fs = await original<typeof import("node:fs")>();
  return {
    ...fs,
    writeSync: (fd: number, bytes: Uint8Array, offset: number, length: number, position: number) => {
      if (disk.writesUntilFull-- <= 0) throw Object.assign(new Error("no space left"), { code: "ENOSPC" });
      return fs.writeSync(fd, bytes, offset, disk.shortWrites ? Math.ceil(length / 2) : length, position);
    },
  };
});

const DECLARATIONS: { name: string; type: GgmlType; dims: number[] }[] = [
  { name: "token_embd.weight", type: "BF16", dims: [8, 3] },
  { name: "blk.0.ffn_gate_exps.weight", type: "MXFP4", dims: [32, 3, 2] },
  { name: "blk.0.ffn_down_exps.weight", type: "Q2_K", dims: [256, 2] },
  { name: "blk.0.ffn_gate_tid2eid.weight", type: "I32", dims: [6, 5] },
  { name: "output_norm.weight", type: "F32", dims: [5] },
];

let folder = "";
let path = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "ds4-writer-"));
  path = join(folder, "model.gguf");
});
afterEach(() => {
  disk.writesUntilFull = Number.POSITIVE_INFINITY;
  disk.shortWrites = false;
  rmSync(folder, { recursive: true, force: true });
});

const newWriter = (metadata = sampleMetadata()) => new GgufWriter(path, { metadata, tensors: DECLARATIONS });
const contentOf = (bytes: number, seed: number) =>
  Uint8Array.from({ length: bytes }, (_, i) => (i * 31 + seed) & 255);

/** Writes every tensor in two pieces, last tensor first. */
function fill(writer: GgufWriter): void {
  for (const [index, tensor] of [...writer.tensors.entries()].reverse()) {
    const content = contentOf(tensor.bytes, index);
    writer.writeTensor(tensor.name, content.subarray(0, 7));
    writer.writeTensor(tensor.name, content.subarray(7));
  }
}

describe("GgufWriter", () => {
  it("writes what the reader reads", () => {
    const writer = newWriter();
    fill(writer);
    expect(readdirSync(folder)).not.toContain("model.gguf");
    writer.finish();
    expect(readdirSync(folder)).toEqual(["model.gguf"]);
    const file = openGguf(path);
    expect(file.sizeBytes).toBe(writer.fileBytes);
    expect([...file.metadata]).toEqual([...sampleMetadata()]);
    for (const [index, tensor] of writer.tensors.entries()) {
      expect(tensor.offsetBytes % 64).toBe(0);
      expect(file.tensor(tensor.name)).toEqual({ ...tensor, fileIndex: 0 });
      expect(file.readTensor(file.tensor(tensor.name)!)).toEqual(contentOf(tensor.bytes, index));
    }
    file.close();
  });

  it("writes what Hugging Face's reader reads: the same metadata and tensor infos", async () => {
    const writer = newWriter();
    fill(writer);
    writer.finish();
    const theirs = await gguf(path, { allowLocalFile: true, typedMetadata: true });
    for (const [key, value] of sampleMetadata()) {
      const entry = theirs.typedMetadata[key];
      expect(GGUFValueType[entry.type].toLowerCase(), key).toBe(LONG_NAMES[value.type] ?? value.type);
      expect(plain(entry.value), key).toEqual(plain(value.type === "array" ? value : value.value));
    }
    expect(theirs.tensorInfos).toHaveLength(writer.tensors.length);
    for (const [index, info] of theirs.tensorInfos.entries()) {
      const { name, type, dims, offsetBytes } = writer.tensors[index];
      expect({ name: info.name, dims: info.shape.map(Number) }).toEqual({ name, dims });
      expect(info.dtype as number).toBe(ggmlType(type).id);
      expect(Number(theirs.tensorDataOffset + info.offset)).toBe(offsetBytes);
    }
  });

  it("leaves nothing behind when aborted, twice over, and refuses further writes", () => {
    const writer = newWriter();
    writer.writeTensor("output_norm.weight", new Uint8Array(20));
    expect(readdirSync(folder)).toHaveLength(1);
    writer.abort();
    writer.abort();
    expect(readdirSync(folder)).toEqual([]);
    expect(() => writer.writeTensor("token_embd.weight", new Uint8Array(4))).toThrow(/finished or aborted/);
  });

  it("leaves nothing behind when the process exits in the middle", () => {
    const module = new URL("./gguf-writer.ts", import.meta.url).href;
    const code = `
      const { GgufWriter } = await import(${JSON.stringify(module)});
      const writer = new GgufWriter(${JSON.stringify(path)}, { metadata: new Map(), tensors: [] });
      const { readdirSync } = await import("node:fs");
      console.log(readdirSync(${JSON.stringify(folder)}).length);
      process.exit(7);`;
    const { status, stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", code], {
      encoding: "utf8",
    });
    expect([status, stdout.trim()]).toEqual([7, "1"]);
    expect(readdirSync(folder)).toEqual([]);
  });

  it("never finishes a file with a gap, and keeps the file that was there", () => {
    writeFileSync(path, "the old one");
    const writer = newWriter();
    fill(writer);
    const incomplete = newWriter();
    incomplete.writeAt("token_embd.weight", 0, new Uint8Array(24));
    expect(() => incomplete.finish()).toThrow(/"token_embd\.weight" is incomplete: 24 of 48 bytes/);
    expect(readFileSync(path, "utf8")).toBe("the old one");
    writer.finish();
    expect(readdirSync(folder)).toEqual(["model.gguf"]);
    expect(readFileSync(path).subarray(0, 4).toString()).toBe("GGUF");
  });

  it("refuses writes that overlap, leave the tensor or name no tensor", () => {
    const writer = newWriter();
    writer.writeAt("token_embd.weight", 10, new Uint8Array(10));
    writer.writeAt("token_embd.weight", 30, new Uint8Array(18));
    const write = (start: number, length: number) => () =>
      writer.writeAt("token_embd.weight", start, new Uint8Array(length));
    expect(write(19, 2)).toThrow(/bytes 19\.\.21 of tensor "token_embd\.weight" are written twice/);
    expect(write(5, 6)).toThrow(/written twice/);
    expect(write(0, 48)).toThrow(/written twice/);
    expect(write(40, 9)).toThrow(/it has 48 bytes/);
    expect(write(-1, 1)).toThrow(/it has 48 bytes/);
    expect(write(0.5, 1)).toThrow(/it has 48 bytes/);
    expect(() => writer.writeTensor("absent", new Uint8Array(1))).toThrow(/"absent" was not declared/);
    write(0, 10)();
    write(20, 10)();
    writer.abort();
  });

  it.each([0, 1, 3])("leaves nothing behind when the disk is full after %s writes", (writes) => {
    disk.writesUntilFull = writes;
    expect(() => fill(newWriter())).toThrow(/no space left; it needs \d+ bytes of free disk/);
    expect(readdirSync(folder)).toEqual([]);
  });

  it("goes on after a short write", () => {
    disk.shortWrites = true;
    const writer = newWriter();
    fill(writer);
    writer.finish();
    const file = openGguf(path);
    expect(file.readTensor(file.tensors[2])).toEqual(contentOf(168, 2));
    file.close();
  });

  it("leaves nothing behind when the target cannot be created or replaced", () => {
    expect(
      () => new GgufWriter(join(folder, "absent", "x.gguf"), { metadata: new Map(), tensors: [] }),
    ).toThrow(/cannot create .*ENOENT/);
    mkdirSync(path);
    const writer = newWriter();
    fill(writer);
    expect(() => writer.finish()).toThrow(/cannot rename/);
    expect(readdirSync(folder)).toEqual(["model.gguf"]);
  });

  it("writes beyond 4 GiB", () => {
    const writer = new GgufWriter(path, {
      metadata: new Map(),
      tensors: [
        { name: "hole", type: "F32", dims: [2 ** 20, 1300] },
        { name: "end", type: "I32", dims: [1] },
      ],
    });
    writer.writeTensor("end", Uint8Array.of(1, 2, 3, 4));
    const unfinished = openGguf(join(folder, readdirSync(folder)[0]));
    expect(unfinished.tensors[1].offsetBytes).toBeGreaterThan(2 ** 32);
    expect([...unfinished.readTensor(unfinished.tensors[1])]).toEqual([1, 2, 3, 4]);
    unfinished.close();
    writer.abort();
  });
});

describe("encodeHeader", () => {
  const encode = (key: string, value: MetadataValue) => () => newWriter(new Map([[key, value]])).abort();

  it("refuses values that their type cannot hold", () => {
    expect(encode("k", { type: "u8", value: 256 })).toThrow(/key "k": 256 does not fit u8/);
    expect(encode("k", { type: "i32", value: 1.5 })).toThrow(/does not fit i32/);
    expect(encode("k", { type: "u64", value: -1n })).toThrow(/fits u64/);
    expect(encode("k", { type: "i64", value: 2n ** 63n })).toThrow(/fits i64/);
    expect(encode("k", { type: "string", value: "\ud800" })).toThrow(/lone surrogate/);
    expect(encode("", { type: "u8", value: 1 })).toThrow(/metadata key ""/);
    const mixed = { type: "array", elementType: "string", values: [1] } as unknown as MetadataValue;
    expect(encode("k", mixed)).toThrow(/array of string holds a number/);
  });

  it("refuses an alignment that the reader would refuse", () => {
    expect(encode("general.alignment", { type: "u32", value: 48 })).toThrow(/alignment is 48/);
    expect(encode("general.alignment", { type: "i32", value: 32 })).toThrow(/has type i32/);
  });

  it.each([
    ["no dims", []],
    ["five dims", [1, 1, 1, 1, 1]],
    ["a zero", [32, 0]],
    ["a fraction", [1.5]],
    ["2^53", [2 ** 53]],
    ["a huge product", [2 ** 40, 2 ** 40]],
  ])("refuses a tensor with %s", (_, dims) => {
    const tensors = [{ name: "w", type: "F32" as const, dims }];
    expect(() => new GgufWriter(path, { metadata: new Map(), tensors })).toThrow(/tensor "w"/);
    expect(readdirSync(folder)).toEqual([]);
  });
});

const LONG_NAMES: Partial<Record<MetadataValue["type"], string>> = {
  u8: "uint8",
  i8: "int8",
  u16: "uint16",
  i16: "int16",
  u32: "uint32",
  i32: "int32",
  f32: "float32",
  u64: "uint64",
  i64: "int64",
  f64: "float64",
};

/** Values without their containers: arrays of arrays of scalars. */
function plain(value: unknown): unknown {
  if (ArrayBuffer.isView(value) || Array.isArray(value)) return Array.from(value as unknown[], plain);
  if (typeof value === "object" && value !== null && "values" in value) return plain(value.values);
  if (typeof value === "object" && value !== null && "value" in value) return plain(value.value);
  return typeof value === "string" ? value.replace(/^\ufeff/, "") : value; // their reader drops a leading U+FEFF
}
