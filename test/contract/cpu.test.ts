import { describe } from "vitest";
import { createCpuBackend } from "../../src/backend/cpu/cpu-backend.ts";
import { loadNative } from "../../src/backend/native.ts";
import { describeBackendContract } from "./backend-contract.ts";

const { addon, reason } = loadNative();

// Without the addon there is no CPU backend to test; the suite says so instead of passing silently.
describe.skipIf(addon === null)(`cpu backend ${reason ?? ""}`, () => {
  for (const threads of [1, 2]) {
    describeBackendContract(
      `cpu, ${threads} threads`,
      (file) => createCpuBackend(file, addon!, { threads, maxBatchTokens: 300 }),
      { self: 0, reference: 2e-3, snapshot: 1e-4 },
    );
  }
});
