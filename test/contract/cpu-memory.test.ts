// The plan is what the CPU backend allocates: to the byte after loading, and after a forward call of full size.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { createCpuBackend } from "../../src/backend/cpu/cpu-backend.ts";
import { loadNative } from "../../src/backend/native.ts";
import { shapeSpec } from "../../src/convert/model-shape.ts";
import { synthesize } from "../../src/convert/synthesize.ts";
import type { GgufFile } from "../../src/gguf/gguf-file.ts";
import { openGguf } from "../../src/gguf/open-gguf.ts";
import { probeMachine } from "../../src/machine/probe.ts";
import { bindModel } from "../../src/model/weights.ts";
import { planMemory, regionBytes } from "../../src/plan/memory-plan.ts";
import { tinyModel } from "../fixtures/tiny-model.ts";

const { addon, reason } = loadNative();
const folder = mkdtempSync(join(tmpdir(), "ds4-plan-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function synthetic(recipe: "q2-q4" | "q8" | "f32"): Promise<GgufFile> {
  const path = join(folder, `${recipe}.gguf`);
  await synthesize(path, { spec: shapeSpec("nano"), recipe, seed: 5 });
  return openGguf(path);
}

const FILES: [string, () => GgufFile | Promise<GgufFile>][] = [
  ["nano q2-q4", () => synthetic("q2-q4")],
  ["nano q8", () => synthetic("q8")],
  ["nano f32", () => synthetic("f32")],
  ["tiny", () => tinyModel()],
];

describe.skipIf(addon === null)(`what the cpu backend holds is what was planned ${reason ?? ""}`, () => {
  test.each(FILES)("%s", async (_name, open) => {
    const file = await open();
    const [ctxTokens, batchTokens, threads, slots] = [96, 48, 2, 2];
    const backend = createCpuBackend(file, addon!, { threads, maxBatchTokens: batchTokens });
    try {
      const options = { backend: "cpu", ctxTokens, slots, batchTokens, headRows: 1, threads } as const;
      const plan = planMemory(file.name, bindModel(file), options, probeMachine());
      const planned = (...ids: string[]) =>
        regionBytes(plan, ({ id }) => ids.some((prefix) => id.startsWith(prefix)));
      const states = [backend.createKv(ctxTokens), backend.createKv(ctxTokens)];
      const arrays = planned("weights/", "kv/") - planned("kv/session");
      expect(backend.stats().weightBytes + backend.stats().kvBytes).toBe(arrays);
      const tokens = Int32Array.from({ length: batchTokens }, (_, i) => (i * 7) % backend.spec.vocabSize);
      for (const kv of states) backend.forward([{ kv, tokens, logits: "last" }]);
      const full = backend.stats().scratchBytes;
      // Thread-local vectors are not counted by the backend; the job list depends on how many experts were chosen.
      const counted = planned("scratch/") - planned("scratch/threads");
      expect(full).toBeLessThanOrEqual(counted);
      expect(full).toBeGreaterThan(counted - 72 * 2 * backend.spec.expertCount - 100);
      for (const kv of states) backend.forward([{ kv, tokens, logits: "last" }]);
      expect(backend.stats().scratchBytes).toBe(full);
    } finally {
      backend.close();
      file.close();
    }
  });
});
