import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { mulberry32 } from "../../test/random-values.ts";
import { type GgmlType, ggmlType } from "./ggml-types.ts";
import { blockFormat } from "./registry.ts";

type Vector = {
  seed: number;
  halfOffsets: number[];
  checksum: number;
  block7Hex: string;
  block7FloatBitsHex: string;
};

const fixture = JSON.parse(
  readFileSync(new URL("../../test/fixtures/blocks/ggml-decoded.json", import.meta.url), "utf8"),
) as { blockCount: number; types: Record<string, Vector> };

/** The fixture's random blocks: see its note. */
function randomBlocks(type: GgmlType, vector: Vector): Uint8Array {
  const { blockBytes } = ggmlType(type);
  const random = mulberry32(vector.seed);
  const bytes = new Uint8Array(fixture.blockCount * blockBytes).map(() => random() >>> 24);
  for (let at = 0; at < bytes.length; at += blockBytes) {
    for (const offset of vector.halfOffsets) {
      if ((bytes[at + offset + 1] & 0x7c) === 0x7c) bytes[at + offset + 1] &= ~0x40;
    }
    if (type === "MXFP4" && bytes[at] === 255) bytes[at] = 254;
  }
  return bytes;
}

function fnv1a(bytes: Uint8Array): number {
  let hash = 2166136261;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 16777619);
  return hash >>> 0;
}

describe.each(Object.entries(fixture.types))("decoding %s", (name, vector) => {
  const type = name as GgmlType;
  const { blockValues, blockBytes } = ggmlType(type);

  it("equals the reference bit for bit on one whole block", () => {
    const values = new Float32Array(blockValues);
    blockFormat(type).decode(Buffer.from(vector.block7Hex, "hex"), 0, values, 0, blockValues);
    const bits = [...new Uint32Array(values.buffer)].map((word) => word.toString(16).padStart(8, "0"));
    expect(bits.join("")).toBe(vector.block7FloatBitsHex);
  });

  it("equals the reference bit for bit on 1000 random blocks (case 47)", () => {
    const bytes = randomBlocks(type, vector);
    const values = new Float32Array(fixture.blockCount * blockValues);
    blockFormat(type).decode(bytes, 0, values, 0, values.length);
    expect(fnv1a(new Uint8Array(values.buffer))).toBe(vector.checksum);
  });

  it("honours byte and value offsets and touches nothing else", () => {
    const block = Buffer.from(vector.block7Hex, "hex");
    const shifted = new Uint8Array(blockBytes + 7);
    shifted.set(block, 7);
    const values = new Float32Array(blockValues + 5).fill(123);
    blockFormat(type).decode(shifted.subarray(2), 5, values, 3, blockValues);
    const plain = new Float32Array(blockValues);
    blockFormat(type).decode(block, 0, plain, 0, blockValues);
    expect(values.subarray(3, 3 + blockValues)).toEqual(plain);
    expect([...values.subarray(0, 3), ...values.subarray(3 + blockValues)]).toEqual([
      123, 123, 123, 123, 123,
    ]);
  });
});
