// Headers of safetensors files, good and damaged.
import { mkdtempSync, readdirSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { safetensorsStart } from "../../test/fixtures/damaged-checkpoint.ts";
import { openSafetensors } from "./safetensors.ts";

const folder = mkdtempSync(join(tmpdir(), "ds4-safetensors-"));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => {
  for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true });
});

const length = (value: bigint) => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value);
  return bytes;
};
const entry = (dtype: unknown, shape: unknown, offsets: unknown) => ({ dtype, shape, data_offsets: offsets });
/** A file of this header with `dataBytes` of zeros. */
const shard = (header: unknown, dataBytes: number) =>
  Buffer.concat([safetensorsStart(header), Buffer.alloc(dataBytes)]);

describe("safetensors headers", () => {
  it("of a good file are read", () => {
    const path = join(folder, "good.safetensors");
    const header = {
      __metadata__: { format: "pt" },
      b: entry("I8", [3], [4, 7]),
      a: entry("F32", [], [0, 4]),
    };
    writeFileSync(path, Buffer.concat([safetensorsStart(header), Buffer.from([0, 0, 128, 63, 7, 8, 9])]));
    const file = openSafetensors(path);
    expect([...file.tensors.keys()]).toEqual(["b", "a"]);
    expect(file.read(file.tensors.get("b")!, 1, 2)).toEqual(Uint8Array.of(8, 9));
    file.close();
  });

  it.each([
    ["empty", Buffer.alloc(0), /found 0 bytes/],
    [
      "a length of 2^64 - 1",
      Buffer.concat([length(2n ** 64n - 1n), Buffer.alloc(64)]),
      /header of 2 to 64 bytes/,
    ],
    ["a length beyond the file", Buffer.concat([length(65n), Buffer.alloc(64)]), /found a length of 65/],
    ["no JSON", Buffer.concat([length(4n), Buffer.from("{{{{")]), /no JSON/],
    ["broken UTF-8", Buffer.concat([length(4n), Buffer.from([0x22, 0xff, 0xfe, 0x22])]), /no JSON/],
    ["a list", shard([], 0), /JSON object/],
    ["an entry that is no object", shard({ a: 1 }, 0), /"a": expected an object/],
    ["an unknown dtype", shard({ a: entry("F13", [1], [0, 4]) }, 4), /unknown dtype "F13"; known: BOOL/],
    ["a dtype of the prototype", shard({ a: entry("toString", [1], [0, 4]) }, 4), /unknown dtype "toString"/],
    ["a negative size", shard({ a: entry("F32", [-1], [0, 4]) }, 4), /expected a shape/],
    ["a fraction", shard({ a: entry("F32", [1.5], [0, 6]) }, 6), /expected a shape/],
    ["a size beyond 2^53", shard({ a: entry("U8", [2 ** 60], [0, 4]) }, 4), /expected a shape/],
    [
      "a product beyond 2^53",
      shard({ a: entry("U8", [2 ** 50, 2 ** 50], [0, 4]) }, 4),
      /takes 1.26.*e\+30 bytes/,
    ],
    ["too many dimensions", shard({ a: entry("U8", new Array(9).fill(1), [0, 1]) }, 1), /at most 8/],
    ["offsets out of order", shard({ a: entry("U8", [1], [1, 0]) }, 1), /data_offsets within the 1 bytes/],
    ["offsets beyond the data", shard({ a: entry("U8", [4], [0, 4]) }, 3), /cut short/],
    [
      "a shape unlike its bytes",
      shard({ a: entry("F32", [2], [0, 4]) }, 4),
      /takes 8 bytes, data_offsets span 4/,
    ],
    ["an overlap", shard({ a: entry("U8", [4], [0, 4]), b: entry("U8", [4], [2, 6]) }, 6), /"b".*overlaps/],
    ["a hole", shard({ a: entry("U8", [4], [0, 4]), b: entry("U8", [4], [5, 9]) }, 9), /"b".*hole/],
    ["trailing bytes", shard({ a: entry("U8", [4], [0, 4]) }, 9), /the tensors end at byte/],
  ])("with %s are refused", (_, bytes, message) => {
    const path = join(folder, "bad.safetensors");
    writeFileSync(path, bytes);
    expect(() => openSafetensors(path)).toThrow(expect.objectContaining({ code: "safetensors" }));
    expect(() => openSafetensors(path)).toThrow(message);
  });

  it("longer than the format's limit are refused before they are read", () => {
    const path = join(folder, "big.safetensors");
    writeFileSync(path, length(100_000_001n));
    truncateSync(path, 300_000_000); // a hole: takes no disk
    expect(() => openSafetensors(path)).toThrow(/2 to 100000000 bytes, found a length of 100000001/);
  });
});
