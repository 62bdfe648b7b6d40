// Which weights the launches of a decode step read, on a driver that runs nothing: every matrix of the model is read once,
// whichever way the backend cuts the work.
import { describe, expect, it } from "vitest";
import { createCudaBackend } from "../../../src/backend/cuda/cuda-backend.ts";
import { loadNative } from "../../../src/backend/native.ts";
import type { GgufFile } from "../../../src/gguf/gguf-file.ts";
import { openGguf } from "../../../src/gguf/open-gguf.ts";
import { bindModel } from "../../../src/model/weights.ts";
import { weightBytesPerToken } from "../../../src/plan/token-traffic.ts";
import { FAKE_IMAGE, FakeDriver } from "../../fixtures/fake-driver.ts";
import { nanoModelPath } from "../../fixtures/nano-model.ts";
import { tinyModel } from "../../fixtures/tiny-model.ts";
import { LaunchWatcher } from "./weight-launches.ts";

const { addon, reason } = loadNative();

describe.skipIf(addon === null)(`weights of launches ${reason ?? ""}`, () => {
  function launchesOf(file: GgufFile) {
    const model = bindModel(file);
    const fake = new FakeDriver();
    const watcher = new LaunchWatcher(fake, model);
    const options = { driver: watcher.driver, kernelImage: FAKE_IMAGE, maxBatchTokens: 32 };
    const backend = createCudaBackend(file, addon!, options);
    const kv = backend.createKv(64);
    backend.forward([{ kv, tokens: Int32Array.of(1, 2, 3), logits: "none" }]);
    watcher.restart();
    const before = fake.launched.length;
    backend.forward([{ kv, tokens: Int32Array.of(1), logits: "last" }]);
    const launches = watcher.launches();
    backend.close();
    expect(launches.map(({ kernel }) => kernel)).toEqual(fake.launched.slice(before));
    return { launches, tokenBytes: weightBytesPerToken(model) };
  }

  it.each([
    ["nano", () => openGguf(nanoModelPath())],
    ["tiny", () => tinyModel()],
  ])("%s", (_name, open) => {
    const { launches, tokenBytes } = launchesOf(open());
    const bytes = launches.reduce((sum, each) => sum + each.bytes, 0);
    // Padded rows count here, the file's own bytes there.
    expect(bytes / tokenBytes).toBeGreaterThanOrEqual(0.999);
    expect(bytes / tokenBytes).toBeLessThan(1.15);
    expect(launches.at(-1)!.tensors).toEqual(["output"]);
    expect(launches.filter(({ tensors }) => tensors.includes("ffn_gate_exps")).length).toBeGreaterThan(1);
    expect(launches.find(({ kernel }) => kernel === "embed_rows")!.tensors).toEqual(["token_embd"]);
    expect(launches.find(({ kernel }) => kernel === "rope_table")!.bytes).toBe(0);
  });
});
