// The process that is traced: opens a model on the device, fills its context, decodes. Its only argument is the run as JSON;
// what it found goes to `run.out` as JSON. scripts/cuda-trace.ts starts it.
import { existsSync, writeFileSync } from "node:fs";
import { createCudaBackend } from "../../../src/backend/cuda/cuda-backend.ts";
import type { CudaDriver } from "../../../src/backend/cuda/driver.ts";
import { requireDriver } from "../../../src/backend/cuda/open-device.ts";
import { loadNative, type NativeAddon } from "../../../src/backend/native.ts";
import { greedyToken } from "../../../src/bench/frontier-bench.ts";
import { benchTokens } from "../../../src/cli/bench-prompt.ts";
import { Ds4Error, UsageError } from "../../../src/core/errors.ts";
import type { KvType } from "../../../src/core/kv-type.ts";
import type { GgufFile } from "../../../src/gguf/gguf-file.ts";
import { openGguf } from "../../../src/gguf/open-gguf.ts";
import { bindModel } from "../../../src/model/weights.ts";
import { tokenizerFromGguf } from "../../../src/tokenizer/gguf-tables.ts";
import { LaunchWatcher, type LaunchWeights } from "./weight-launches.ts";

/** What to decode. */
export interface DecodeRun {
  model: string;
  ctxTokens: number;
  /** Steps that count; two more come before them, of which one is launched kernel by kernel and one recorded. */
  tokens: number;
  kvType: KvType;
  device: number;
  /** Where the outcome goes. */
  out: string;
}

/** What the process saw. */
export interface DecodeOutcome {
  description: string;
  driverVersion: number;
  layerCount: number;
  /** The host's clock around each step that counts. */
  stepsMs: number[];
  /** Of the step that was launched kernel by kernel. */
  launches: LaunchWeights[];
}

const FIRST_STEPS = 2;

/** Decodes with a driver. Throws `usage` for a context that the model does not have, and what the backend throws. */
export function runDecode(
  run: DecodeRun,
  file: GgufFile,
  addon: NativeAddon,
  driver: CudaDriver,
  kernelImage?: Uint8Array,
): DecodeOutcome {
  const model = bindModel(file);
  const capacityTokens = run.ctxTokens + FIRST_STEPS + run.tokens;
  if (capacityTokens > model.spec.contextTokens) {
    throw new UsageError(
      `--ctx ${run.ctxTokens}: with ${FIRST_STEPS + run.tokens} tokens more than the model's ${model.spec.contextTokens}`,
    );
  }
  const tokenizer = tokenizerFromGguf(file);
  const prompt = benchTokens(tokenizer, {}, run.ctxTokens);
  const watcher = new LaunchWatcher(driver, model);
  const options = { driver: watcher.driver, device: run.device, kvType: run.kvType, kernelImage };
  const backend = createCudaBackend(file, addon, options);
  try {
    const kv = backend.createKv(capacityTokens);
    // Candidates, as a session asks for: whole rows would show other kernels at the end of a step.
    const forward = (tokens: Int32Array) => {
      const { top, logits } = backend.forward([{ kv, tokens, logits: "top" }]);
      return greedyToken(top[0] ?? logits[0], tokenizer.stopIds);
    };
    let token = 0;
    for (let at = 0; at < prompt.length; at += backend.maxBatchTokens) {
      token = forward(prompt.slice(at, at + backend.maxBatchTokens));
    }
    const stepsMs: number[] = [];
    let launches: LaunchWeights[] = [];
    for (let step = 0; step < FIRST_STEPS + run.tokens; step++) {
      watcher.restart();
      const started = performance.now();
      token = forward(Int32Array.of(token));
      stepsMs.push(performance.now() - started);
      if (step === 0) launches = watcher.launches();
    }
    return {
      ...{ description: backend.description, driverVersion: driver.version, launches },
      ...{ layerCount: model.spec.layers.length, stepsMs: stepsMs.slice(FIRST_STEPS) },
    };
  } finally {
    backend.close();
  }
}

function main(run: DecodeRun): void {
  const driver = requireDriver();
  const csv = process.env.DS4_TRACE_CSV;
  if (csv !== undefined && !existsSync(csv)) {
    throw new Ds4Error(
      "cuda",
      "the driver runs, but kernels are not traced: a message above says why; without one, the driver has not loaded " +
        `${process.env.CUDA_INJECTION64_PATH} (CUDA_INJECTION64_PATH)`,
    );
  }
  const { addon, reason } = loadNative();
  if (addon === null) throw new Ds4Error("native", `the native addon does not load: ${reason}`);
  const file = openGguf(run.model);
  try {
    writeFileSync(run.out, JSON.stringify(runDecode(run, file, addon, driver)));
  } finally {
    file.close();
  }
}

if (process.argv[1] === import.meta.filename) {
  try {
    main(JSON.parse(process.argv[2]));
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}
