// The CUDA backend's host code under the contract: a fake device whose steps run on the CPU. The kernels themselves are
// checked on a GPU by `npm run cuda:check`.
import { describe } from "vitest";
import { createCudaBackend } from "../../src/backend/cuda/cuda-backend.ts";
import { loadNative } from "../../src/backend/native.ts";
import { nativeKernels } from "../../src/backend/native-kernels.ts";
import { createReferenceBackend } from "../../src/backend/reference/reference-backend.ts";
import type { KvType } from "../../src/core/kv-type.ts";
import type { GgufFile } from "../../src/gguf/gguf-file.ts";
import { emulatedSteps } from "../fixtures/emulated-cuda-steps.ts";
import { FAKE_IMAGE, FakeDriver } from "../fixtures/fake-driver.ts";
import { describeBackendContract } from "./backend-contract.ts";

const { addon, reason } = loadNative();

describe.skipIf(addon === null)(`cuda backend on a fake device ${reason ?? ""}`, () => {
  const open = (file: GgufFile, kvType: KvType) => {
    const kernels = nativeKernels(addon!);
    const driver = new FakeDriver();
    const steps = emulatedSteps(driver, kernels, new kernels.Workspace(1));
    const options = { driver, steps, kernelImage: FAKE_IMAGE, maxBatchTokens: 300, kvType };
    return createCudaBackend(file, addon!, options);
  };
  describeBackendContract("cuda, emulated", (file) => open(file, "f16"), {
    ...{ self: 2e-3, reference: 1e-2, snapshot: 4e-3 },
    // Keys and values are float16: without the same rounding, near ties of routers and indexers fall otherwise.
    oracle: (file) => createReferenceBackend(file, { qatRounding: "float16" }),
  });
  describeBackendContract("cuda, emulated, f16x2", (file) => open(file, "f16x2"), {
    ...{ self: 1e-4, reference: 2e-3, snapshot: 1e-4 },
  });
});
