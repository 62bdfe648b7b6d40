// The CUDA backend's host code under the contract: a fake device whose steps run on the CPU. The kernels themselves are
// checked on a GPU by `npm run cuda:check`.
import { describe } from "vitest";
import { createCudaBackend } from "../../src/backend/cuda/cuda-backend.ts";
import { loadNative } from "../../src/backend/native.ts";
import { nativeKernels } from "../../src/backend/native-kernels.ts";
import { emulatedSteps } from "../fixtures/emulated-cuda-steps.ts";
import { FAKE_IMAGE, FakeDriver } from "../fixtures/fake-driver.ts";
import { describeBackendContract } from "./backend-contract.ts";

const { addon, reason } = loadNative();

describe.skipIf(addon === null)(`cuda backend on a fake device ${reason ?? ""}`, () => {
  describeBackendContract(
    "cuda, emulated",
    (file) => {
      const kernels = nativeKernels(addon!);
      const driver = new FakeDriver();
      const steps = emulatedSteps(driver, kernels, new kernels.Workspace(1));
      return createCudaBackend(file, addon!, { driver, steps, kernelImage: FAKE_IMAGE, maxBatchTokens: 300 });
    },
    { self: 1e-4, reference: 2e-3, snapshot: 1e-4 },
  );
});
