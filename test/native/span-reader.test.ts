// The reader of weight spans: every byte from every place, and every way in which reading can end.
import { closeSync, mkdtempSync, openSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { loadNative } from "../../src/backend/native.ts";
import { nativeKernels, type SpanReader, type SpanReaderOptions } from "../../src/backend/native-kernels.ts";

const { addon } = loadNative();
const native = addon === null ? null : nativeKernels(addon);

const SIZES = [300_001, 70_000];
const OPTIONS: SpanReaderOptions = { bufferBytes: 40_000, buffers: 3, threads: 2 };
/** File, offset, bytes: within a page, over pages, touching, overlapping, to the very end. */
const SPANS = [
  [0, 0, 40_000],
  [0, 40_000, 1],
  [0, 4095, 2],
  [1, 69_000, 1000],
  [0, 123_457, 39_999],
  [0, 8192, 4096],
  [1, 0, 40_000],
  [0, 300_000, 1],
  [0, 260_001, 40_000],
];

const folder = mkdtempSync(join(tmpdir(), "ds4-span-reader-"));
const contents = SIZES.map((size, file) =>
  Uint8Array.from({ length: size }, (_, i) => (i * 31 + file) % 251),
);
const paths = contents.map((bytes, file) => {
  const path = join(folder, `${file}.bin`);
  writeFileSync(path, bytes);
  return path;
});
const readers: SpanReader[] = [];
afterEach(() => {
  for (const reader of readers.splice(0)) reader.close();
});
afterAll(() => rmSync(folder, { recursive: true }));

/** A reader whose descriptors are closed already: it has its own. */
function open(options: Partial<SpanReaderOptions> = {}, spans = SPANS): SpanReader {
  const descriptors = paths.map((path) => openSync(path, "r"));
  try {
    const reader = new native!.SpanReader(descriptors, Float64Array.from(spans.flat()), {
      ...OPTIONS,
      ...options,
    });
    readers.push(reader);
    return reader;
  } finally {
    for (const descriptor of descriptors) closeSync(descriptor);
  }
}

const expected = ([file, offset, bytes]: number[]) => contents[file].subarray(offset, offset + bytes);

describe.skipIf(native === null)("span reader", () => {
  test.each([
    {},
    { bypassCache: false },
    { maxReadBytes: 4096 },
    { buffers: 2, threads: 1 },
    { buffers: 64, threads: 8 },
  ])("delivers every span in order: %o", (options) => {
    const reader = open(options);
    for (const span of SPANS) expect(Buffer.compare(reader.next()!, expected(span)), `${span}`).toBe(0);
    expect(reader.next()).toBeNull();
    expect(reader.next()).toBeNull();
  });

  test("no spans end at once", () => {
    expect(open({}, []).next()).toBeNull();
  });

  test.each([0, 39_999, 40_000, 41_003, 160_000])(
    "an I/O error at byte %i comes in its turn",
    (failAtByte) => {
      const reader = open({ failAtByte });
      let begin = 0;
      for (const span of SPANS) {
        const [file, offsetBytes, expectedBytes] = span;
        if (failAtByte < begin + expectedBytes) {
          const failure = {
            file,
            offsetBytes,
            expectedBytes,
            foundBytes: 0,
            reason: expect.stringMatching(/error/i),
          };
          expect(() => reader.next()).toThrow(expect.objectContaining(failure));
          // It stays failed.
          expect(() => reader.next()).toThrow(expect.objectContaining(failure));
          return;
        }
        expect(Buffer.compare(reader.next()!, expected(span))).toBe(0);
        begin += expectedBytes;
      }
      expect.unreachable("no span failed");
    },
  );

  test.each([true, false])(
    "a file that was truncated says how much there was (bypassCache %s)",
    (bypassCache) => {
      const spans = [
        [1, 0, 20_000],
        [1, 25_000, 40_000],
        [1, 65_000, 10],
      ];
      truncateSync(paths[1], 30_000);
      try {
        const reader = open({ bypassCache }, spans);
        expect(Buffer.compare(reader.next()!, expected(spans[0]))).toBe(0);
        const failure = { file: 1, offsetBytes: 25_000, expectedBytes: 40_000, foundBytes: 5000, reason: "" };
        expect(() => reader.next()).toThrow(expect.objectContaining(failure));
      } finally {
        writeFileSync(paths[1], contents[1]);
      }
    },
  );

  test("closing at any moment empties what was handed out", () => {
    for (let count = 0; count <= SPANS.length; count++) {
      const reader = open();
      let bytes: Uint8Array | null = null;
      for (let i = 0; i < count; i++) bytes = reader.next();
      reader.close();
      reader.close();
      if (bytes !== null) expect(bytes).toHaveLength(0);
      expect(reader.stagingBytes).toBe(0);
      expect(() => reader.next()).toThrow(/closed/);
    }
  });

  test.each([
    [[2, 0, 1], {}],
    [[0, -1, 1], {}],
    [[0, 0, 0], {}],
    [[0, 0, 40_001], {}],
    [[0, 0.5, 1], {}],
    [[0, 0, 1], { buffers: 1 }],
    [[0, 0, 1], { threads: 0 }],
    [[0, 0, 1], { bufferBytes: Number.NaN }],
  ])("refuses span %o with options %o", (span, options) => {
    expect(() => open(options, [span])).toThrow(RangeError);
  });

  test("refuses a descriptor that is not open", () => {
    expect(() => new native!.SpanReader([1 << 20], new Float64Array(0), OPTIONS)).toThrow(/descriptor/);
    expect(() => new native!.SpanReader(["x"] as never, new Float64Array(0), OPTIONS)).toThrow(TypeError);
  });
});
