import { expect, test } from "vitest";
import { Ds4Error } from "../core/errors.ts";
import type { KvSnapshot } from "./kv-snapshot.ts";
import { decodeKvSnapshot, encodeKvSnapshot } from "./kv-snapshot-codec.ts";

const snapshot: KvSnapshot = {
  lengthTokens: 3,
  shapeKey: "shape",
  sections: [
    { name: "0.window", shape: [3, 2], data: Float32Array.of(1, -2, 3.5, 0, 1e-30, -0) },
    { name: "1.compressed", shape: [0, 2], data: new Float32Array(0) },
  ],
};

test("a snapshot survives encoding bit for bit, also from a view at an odd offset", () => {
  const bytes = encodeKvSnapshot(snapshot);
  const shifted = new Uint8Array(bytes.length + 1);
  shifted.set(bytes, 1);
  expect(decodeKvSnapshot(bytes)).toEqual(snapshot);
  expect(decodeKvSnapshot(shifted.subarray(1))).toEqual(snapshot);
});

test("every cut and every flipped byte is refused with a typed error", () => {
  const bytes = encodeKvSnapshot(snapshot);
  for (let at = 0; at < bytes.length; at++) {
    expect(() => decodeKvSnapshot(bytes.slice(0, at))).toThrow(Ds4Error);
    const flipped = bytes.slice();
    flipped[at] ^= 0x40;
    expect(() => decodeKvSnapshot(flipped)).toThrow(Ds4Error);
  }
});
