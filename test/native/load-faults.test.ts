// Loading a model that is large enough to bypass the page cache, and every way in which it can fail: one clear error,
// and all memory back.
import { spawnSync } from "node:child_process";
import { closeSync, copyFileSync, mkdtempSync, openSync, readFileSync, rmSync, truncateSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { loadNative } from "../../src/backend/native.ts";
import { type NativeKernels, nativeKernels } from "../../src/backend/native-kernels.ts";
import { blockFormat } from "../../src/blocks/registry.ts";
import { firstLayers, shapeSpec } from "../../src/convert/model-shape.ts";
import { synthesize } from "../../src/convert/synthesize.ts";
import { GIB, MIB } from "../../src/core/units.ts";
import { openGguf } from "../../src/gguf/open-gguf.ts";
import { bindModel } from "../../src/model/weights.ts";
import { longestReadBytes, stagingBytes } from "../../src/plan/staging-size.ts";
import { planWeights } from "../../src/plan/weight-layout.ts";
import { type LoadOptions, loadWeights, type ResidentWeights } from "../../src/residency/load-weights.ts";
import { planReads } from "../../src/residency/read-order.ts";
import { SessionEngine } from "../../src/session/session-engine.ts";

const { addon } = loadNative();
const native = addon === null ? null : nativeKernels(addon);
const root = join(import.meta.dirname, "..", "..");
const folder = mkdtempSync(join(tmpdir(), "ds4-load-faults-"));
const path = join(folder, "nano-f32.gguf");

beforeAll(async () => {
  await synthesize(path, { spec: shapeSpec("nano"), recipe: "f32", seed: 3 });
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Loads `modelPath`, hands the weights to `use` and closes everything. */
function load(
  options: LoadOptions = {},
  use: (weights: ResidentWeights) => void = () => {},
  { modelPath = path, kernels = native!, afterOpening = () => {} } = {},
): void {
  const file = openGguf(modelPath);
  const workspace = kernels.Workspace ? new kernels.Workspace(1) : null!;
  try {
    const model = bindModel(file);
    afterOpening();
    const weights = loadWeights(kernels, workspace, file, model, options);
    try {
      use(weights);
    } finally {
      weights.close();
    }
  } finally {
    workspace.close();
    file.close();
  }
}

function plannedWeights() {
  const file = openGguf(path);
  const plan = planWeights(bindModel(file));
  file.close();
  return { plan, reads: planReads(plan, longestReadBytes(plan)) };
}

/**
 * Garbage does not count: it would go while a test holds what it measures. Large buffers go beside a collection, so that only a
 * size that no longer falls is one.
 */
function residentBytes(): number {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  let found = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 40; round++) {
    collect();
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
    const bytes = Number(readFileSync("/proc/self/statm", "utf8").split(" ")[1]) * 4096;
    if (bytes > found - MIB / 4) return bytes;
    found = bytes;
  }
  return found;
}

/** Runs a load that must fail, and checks that its memory is back; the arena has over 100 MiB. */
function expectFailure(run: () => void, error: { code: string; message?: unknown }): void {
  const before = residentBytes();
  expect(run).toThrow(expect.objectContaining(error));
  expect(residentBytes() - before).toBeLessThan(32 * MIB);
}

describe.skipIf(native === null || process.platform !== "linux")("loading a large file", () => {
  test.each([{}, { maxReadBytes: 128 * 1024 }])(
    "leaves the page cache alone and loses no bit: %o",
    (faults) => {
      load({ faults }, (weights) => {
        const descriptor = openSync(path, "r");
        const cached = native!.cachedFileBytes(descriptor);
        closeSync(descriptor);
        const file = openGguf(path);
        expect(cached).toBeLessThan(0.05 * file.sizeBytes);
        for (const { tensor, rows, cols, slices } of weights.plan.matrices) {
          const bytes = file.readTensor(tensor);
          const expected = new Float32Array(cols);
          const found = new Float32Array(cols);
          const matrix = weights.matrix(tensor);
          for (const [slice, row] of [
            [0, 0],
            [slices - 1, rows - 1],
            [slices >> 1, rows >> 1],
          ]) {
            blockFormat(tensor.type).decode(bytes, (slice * rows + row) * 4 * cols, expected, 0, cols);
            matrix.unpackRow(slice, row, found);
            expect(Buffer.compare(Buffer.from(found.buffer), Buffer.from(expected.buffer)), tensor.name).toBe(
              0,
            );
          }
        }
        file.close();
      });
    },
  );

  test("the staging buffers have the planned size, and the memory comes back", () => {
    const { plan, reads } = plannedWeights();
    const options = { bufferBytes: longestReadBytes(plan), buffers: 8, threads: 1 };
    const reader = new native!.SpanReader([], new Float64Array(0), options);
    expect(reader.stagingBytes).toBe(stagingBytes(plan));
    reader.close();
    expect(reads.length).toBeGreaterThan(20);
    const before = residentBytes();
    load({}, () => expect(residentBytes() - before).toBeGreaterThan(90 * MIB));
    expect(residentBytes() - before).toBeLessThan(32 * MIB);
  });

  test.each([0, 0.3, 0.77, 1])("an I/O error after %d of the file", (share) => {
    const { reads } = plannedWeights();
    const total = reads.reduce((sum, { bytes }) => sum + bytes, 0);
    const failAtByte = Math.min(total - 1, Math.floor(share * total));
    let begin = 0;
    const failed = reads.find(({ bytes }) => {
      begin += bytes;
      return failAtByte < begin;
    })!;
    expectFailure(() => load({ faults: { failAtByte } }), {
      code: "io",
      message: expect.stringContaining(
        `${path}: expected ${failed.bytes} bytes at offset ${failed.offsetBytes}, found 0: `,
      ),
    });
  });

  test("a file that was truncated after its header was read", () => {
    const copy = join(folder, "truncated.gguf");
    copyFileSync(path, copy);
    const afterOpening = () => truncateSync(copy, 60 * MIB + 5);
    expectFailure(() => load({}, undefined, { modelPath: copy, afterOpening }), {
      code: "io",
      message: expect.stringMatching(/truncated\.gguf ended .*truncated after opening/),
    });
  });

  test("cancellation before any read", () => {
    const { reads } = plannedWeights();
    for (let moment = 0; moment < reads.length; moment += 7) {
      let looks = 0;
      const signal = {
        get aborted() {
          return looks++ >= moment;
        },
      };
      expectFailure(() => load({ signal }), { code: "cancelled", message: "loading was cancelled" });
      expect(looks).toBe(moment + 1);
    }
  });

  test("an engine whose signal is aborted while it opens", async () => {
    const opening = SessionEngine.open({ modelPath: path, backend: "cpu", signal: AbortSignal.abort() });
    await expect(opening).rejects.toMatchObject({ code: "cancelled", message: "loading was cancelled" });
  });

  test.each(["WeightArena", "SpanReader"] as const)("a refused %s", (name) => {
    const refused = class {
      constructor() {
        throw new Error("the operating system refused it");
      }
    };
    const kernels = { ...native!, [name]: refused } as unknown as NativeKernels;
    expectFailure(() => load({}, undefined, { kernels }), {
      code: "memory",
      message: expect.stringMatching(/nano-f32\.gguf: .*the operating system refused it/),
    });
  });

  test("an arena is not freed while it is being filled", () => {
    const arena = new native!.WeightArena(4096);
    const matrix = new native!.WeightMatrix(arena, 0, 0, 1, 16, 4);
    const reader = new native!.SpanReader([], new Float64Array(0), {
      ...{ bufferBytes: 4096, buffers: 2, threads: 1 },
      ...{ matrices: [matrix], pieces: new Float64Array(0) },
    });
    expect(() => arena.close()).toThrow(/being filled/);
    reader.close();
    arena.close();
    expect(() => matrix.unpackRow(0, 0, new Float32Array(4))).toThrow(/closed/);
  });

  // Real refusal, by a limit of the address space that has room for everything but the arena.
  test("the command ends with exit code 3 when the weights get no memory", async () => {
    const large = join(folder, "large.gguf");
    const spec = firstLayers(shapeSpec("flash"), 4);
    await synthesize(large, { spec, recipe: "q4", seed: 1, sparse: true });
    const limitKib = (12 * GIB) / 1024;
    const command = `ulimit -v ${limitKib}; exec "$0" src/cli/ds4.ts -m "$1" --cpu --ctx 64 --force -p hi`;
    const { status, stderr } = spawnSync("sh", ["-c", command, process.execPath, large], {
      cwd: root,
      encoding: "utf8",
    });
    expect(stderr).toMatch(
      /large\.gguf: no memory for \d+\.\d\d GiB of weights: the operating system refused/,
    );
    expect(status).toBe(3);
  });
});
