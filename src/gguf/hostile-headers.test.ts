// Headers that lie. Every case must end in a typed error, at once, and without memory to match the lie.
import { describe, expect, it } from "vitest";
import {
  buildGguf,
  GgufBytes,
  sampleMetadata,
  sampleTensors,
  VALUE_TYPE,
} from "../../test/fixtures/gguf-builder.ts";
import { Ds4Error } from "../core/errors.ts";
import type { MetadataValue } from "./gguf-file.ts";
import { MAX_HEADER_BYTES } from "./limits.ts";
import { memoryByteSource } from "./memory-source.ts";
import { parseGguf } from "./parse-gguf.ts";

const F32 = 0;

/** Parses and returns the error. Fails when there is none, when it is not ours, or when it took long. */
function refusal(bytes: Uint8Array): Ds4Error {
  const memoryBefore = process.memoryUsage();
  let { error, cpuMs } = attempt(bytes);
  const memoryAfter = process.memoryUsage();
  // A collection of garbage may fall into the first attempt; the promise is about the parser.
  for (let again = 0; again < 2 && cpuMs >= 50; again++) ({ error, cpuMs } = attempt(bytes));
  expect(error).toBeInstanceOf(Ds4Error);
  expect(cpuMs).toBeLessThan(50);
  expect(memoryAfter.arrayBuffers - memoryBefore.arrayBuffers).toBeLessThan(10 * 2 ** 20);
  return error as Ds4Error;
}

/** What parsing throws, and the processor time it took: wall time would measure the machine's other work. */
function attempt(bytes: Uint8Array): { error: unknown; cpuMs: number } {
  const start = process.threadCpuUsage();
  let error: unknown;
  try {
    parseGguf(memoryByteSource(bytes, "hostile"));
  } catch (thrown) {
    error = thrown;
  }
  const { user, system } = process.threadCpuUsage(start);
  return { error, cpuMs: (user + system) / 1000 };
}

/** A header with one key whose value is written by hand. */
function withEntry(typeId: number, write: (out: GgufBytes) => void): Uint8Array {
  const out = new GgufBytes().header(0, 1).string("key").u32(typeId);
  write(out);
  return out.finish();
}

/** A header with tensor infos only, followed by `dataBytes` of data. */
function withTensors(infos: readonly Parameters<GgufBytes["tensorInfo"]>[], dataBytes = 64): Uint8Array {
  const out = new GgufBytes().header(infos.length, 0);
  for (const info of infos) out.tensorInfo(...info);
  return out.pad(32).raw(new Uint8Array(dataBytes)).finish();
}

describe("a hostile GGUF header", () => {
  it("is warmed up: the first parse compiles", () => {
    expect(() =>
      parseGguf(memoryByteSource(buildGguf(sampleMetadata(), sampleTensors()).bytes)),
    ).not.toThrow();
    refusal(new Uint8Array(24));
  });

  it.each([2n ** 32n, 2n ** 53n + 1n, 2n ** 64n - 1n])(
    "cannot make counts drive allocation: %s keys or tensors in 24 bytes (case 122)",
    (count) => {
      expect(refusal(new GgufBytes().header(0, count).finish()).message).toMatch(/key count/);
      expect(refusal(new GgufBytes().header(count, 0).finish()).message).toMatch(/tensor count/);
    },
  );

  it.each([0, 5, 9, 4_294_967_295])("cannot have %s dimensions (case 123)", (dimCount) => {
    const out = new GgufBytes().header(1, 0).string("w").u32(dimCount);
    for (let i = 0; i < 9; i++) out.u64(1);
    expect(refusal(out.u32(F32).u64(0).finish()).message).toMatch(/dimensions; expected 1 to 4/);
  });

  it.each<MetadataValue>([
    { type: "u32", value: 0 },
    { type: "u32", value: 3 },
    { type: "u32", value: 4 },
    { type: "u32", value: 2 ** 30 },
    { type: "u32", value: 2 ** 31 },
    { type: "i32", value: 32 },
    { type: "u64", value: 32n },
    { type: "string", value: "32" },
    { type: "array", elementType: "u32", values: Uint32Array.of(32) },
  ])("cannot have the alignment $type $value (case 124)", (value) => {
    const message = refusal(buildGguf(new Map([["general.alignment", value]])).bytes).message;
    expect(message).toMatch(/general\.alignment/);
  });

  it.each([2n ** 63n, 2n ** 53n + 1n, 2n ** 64n - 1n])(
    "cannot have an array or string of %s (case 125)",
    (length) => {
      for (const elementType of Object.values(VALUE_TYPE)) {
        const array = withEntry(VALUE_TYPE.array, (out) => out.u32(elementType).u64(length).u32(0));
        expect(refusal(array).message).toMatch(/array length/);
      }
      expect(refusal(withEntry(VALUE_TYPE.string, (out) => out.u64(length).u32(0))).message).toMatch(
        /length of/,
      );
    },
  );

  it("cannot recurse: 10,000 nested arrays are refused by depth (case 126)", () => {
    const bytes = withEntry(VALUE_TYPE.array, (out) => {
      for (let i = 0; i < 10_000; i++) out.u32(VALUE_TYPE.array).u64(1);
    });
    expect(refusal(bytes).message).toMatch(/nested deeper than 8/);
  });

  it("cannot spread small nested arrays over the heap (case 126)", () => {
    const bytes = withEntry(VALUE_TYPE.array, (out) => {
      out
        .u32(VALUE_TYPE.array)
        .u64(100_000)
        .raw(new Uint8Array(100_000 * 12));
    });
    expect(refusal(bytes).message).toMatch(/more than 65536 nested arrays/);
  });

  it.each([
    { dims: [2n ** 63n - 1n, 2n] },
    { dims: [1152n, 2n ** 42n + 1n] },
    { dims: [2n ** 32n, 2n ** 32n] },
    { dims: [2n ** 62n, 1n, 1n, 4n] },
    { dims: [2n ** 64n - 1n] },
    { dims: [0n, 4n] },
    { dims: [16n, 2n] },
  ])("cannot have sizes that overflow or leave the file: $dims (case 127)", ({ dims }) => {
    expect(refusal(withTensors([["w", dims, F32, 0]])).message).toMatch(/"w"/);
  });

  it("cannot place a tensor at the end of the file, off the alignment or beyond 2^53 (case 127)", () => {
    expect(refusal(withTensors([["w", [4], F32, 63]])).message).toMatch(/not a multiple of the alignment/);
    expect(refusal(withTensors([["w", [4], F32, 64]])).message).toMatch(/is it truncated/);
    expect(refusal(withTensors([["w", [4], F32, 2n ** 64n - 32n]])).message).toMatch(/offset of tensor/);
  });

  it("cannot lay two tensors over each other (case 127)", () => {
    expect(refusal(withTensors([["a", [4], F32, 0], ["b", [4], F32, 0]])).message).toMatch(/"a" and "b" overlap/); // biome-ignore format: one case a line
    expect(refusal(withTensors([["b", [4], F32, 32], ["a", [9], F32, 0]])).message).toMatch(/overlap/); // biome-ignore format: one case a line
  });

  it("cannot split a block over two rows", () => {
    expect(refusal(withTensors([["w", [48, 2], 8, 0]], 4096)).message).toMatch(
      /multiple of Q8_0's block of 32/,
    );
  });

  it("stops at an unknown element type, whatever the count (case 128)", () => {
    const bytes = withEntry(VALUE_TYPE.array, (out) =>
      out
        .u32(99)
        .u64(2n ** 60n)
        .u64(0),
    );
    expect(refusal(bytes).message).toMatch(/value type 99; known types are 0\.\.12/);
    expect(refusal(withEntry(13, (out) => out.u64(0))).message).toMatch(/value type 13/);
  });

  it("is refused when truncated at any byte of a 2 KB header (case 128)", () => {
    const metadata = sampleMetadata();
    metadata.set("sample.padding", { type: "string", value: "x".repeat(600) });
    const { bytes, headerBytes } = buildGguf(metadata, sampleTensors());
    expect(headerBytes).toBeGreaterThan(1800);
    const last = sampleTensors().at(-1)!;
    const needed = bytes.length - (64 - (last.data.length % 64)); // the padding after the last tensor may be missing
    for (let length = 0; length < needed; length++) {
      expect(() => parseGguf(memoryByteSource(bytes.subarray(0, length))), `${length}`).toThrow(Ds4Error);
    }
    expect(parseGguf(memoryByteSource(bytes.subarray(0, needed))).tensors).toHaveLength(4);
  });

  it("cannot repeat or leave out a name", () => {
    const twice = new GgufBytes().header(0, 2);
    for (let i = 0; i < 2; i++) twice.entry("key", { type: "u32", value: i });
    expect(refusal(twice.finish()).message).toMatch(/"key" occurs twice/);
    expect(refusal(buildGguf(new Map([["", { type: "u32", value: 1 }]])).bytes).message).toMatch(/empty/);
    expect(refusal(withTensors([["", [4], F32, 0]])).message).toMatch(/empty name/);
    expect(refusal(withTensors([["a", [1], F32, 0], ["a", [1], F32, 32]])).message).toMatch(/"a" occurs twice/); // biome-ignore format: one case a line
  });

  it("cannot store bytes that are no text or no bool", () => {
    const text = withEntry(VALUE_TYPE.string, (out) => out.u64(2).raw(Uint8Array.of(0xc3, 0x28)));
    expect(refusal(text).message).toMatch(/not valid UTF-8/);
    expect(refusal(withEntry(VALUE_TYPE.bool, (out) => out.u8(2))).message).toMatch(/bool of 0 or 1, got 2/);
    const bools = withEntry(VALUE_TYPE.array, (out) => out.u32(VALUE_TYPE.bool).u64(2).u8(1).u8(7));
    expect(refusal(bools).message).toMatch(/bool of 0 or 1, got 7/);
  });

  it("cannot send escape codes to the terminal through an error", () => {
    const { message } = refusal(withTensors([["\u001b[2J\u009b1m\u202e", [0], F32, 0]]));
    expect(message).toMatch(/\\u001b\[2J\\u009b1m\\u202e/);
    expect(message).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202e]/);
  });

  it("cannot pass a huge file's weights off as metadata", () => {
    const head = withEntry(VALUE_TYPE.array, (out) => out.u32(VALUE_TYPE.u8).u64(2n ** 33n));
    const source = {
      name: "huge",
      sizeBytes: 2 ** 40,
      readInto: (target: Uint8Array, offsetBytes: number) => target.set(head.subarray(offsetBytes, offsetBytes + target.length)), // biome-ignore format: short
      close: () => {},
    };
    expect(() => parseGguf(source)).toThrow(/array length/);
    expect(MAX_HEADER_BYTES).toBeLessThan(2 ** 33);
  });
});

describe("a file that is no GGUF this reader takes", () => {
  it("is told apart: other formats, version 1, big-endian, unknown tensor types", () => {
    const header = (version: number, magic?: string) => new GgufBytes().header(0, 0, version, magic).finish();
    expect(refusal(header(1)).message).toMatch(/version 1 is not supported/);
    expect(refusal(header(4)).message).toMatch(/version 4 is not supported/);
    expect(refusal(header(0x03000000)).message).toMatch(/big-endian/);
    expect(refusal(header(0x01000000)).message).toMatch(/big-endian/);
    expect(refusal(header(3, "PK\x03\x04")).message).toMatch(/expected a GGUF file/);
    expect(refusal(new Uint8Array(0)).message).toMatch(/only 0 bytes/);
    expect(refusal(withTensors([["w", [32], 2, 0]]))).toMatchObject({ code: "unsupported-type" });
    expect(refusal(withTensors([["w", [32], 2, 0]])).message).toMatch(/hostile: tensor "w" has type Q4_0/);
    expect(refusal(withTensors([["w", [32], 4_294_967_295, 0]])).message).toMatch(/type id 4294967295/);
  });

  it("is accepted as version 2, which has the same layout", () => {
    expect(parseGguf(memoryByteSource(new GgufBytes().header(0, 0, 2).finish())).version).toBe(2);
  });
});

describe("a header that is valid but larger than any model's", () => {
  it.each([
    ["keys", () => new GgufBytes().header(0, 16_385).raw(new Uint8Array(400_000)), /key count/],
    ["tensors", () => new GgufBytes().header(131_073, 0).raw(new Uint8Array(5_000_000)), /tensor count/],
    ["strings in arrays", () => listOf(VALUE_TYPE.string, 1_048_577, 8), /more than 1048576/],
    ["bools in arrays", () => listOf(VALUE_TYPE.bool, 1_048_577, 1), /more than 1048576/],
    ["bytes of one string", () => longString(16_777_217), /at most 16777216/],
  ])("is refused for its number of %s", (_, build, message) => {
    expect(refusal(build().finish()).message).toMatch(message);
  });

  const listOf = (typeId: number, count: number, width: number) =>
    new GgufBytes()
      .header(0, 1)
      .string("key")
      .u32(VALUE_TYPE.array)
      .u32(typeId)
      .u64(count)
      .raw(new Uint8Array(count * width));
  const longString = (length: number) =>
    new GgufBytes().header(0, 1).string("key").u32(VALUE_TYPE.string).u64(length).raw(new Uint8Array(length));
});
