import { describe } from "vitest";
import { createCpuBackend } from "../../src/backend/cpu/cpu-backend.ts";
import { loadNative } from "../../src/backend/native.ts";
import { describeNanoGolden } from "./nano-golden.ts";

const { addon, reason } = loadNative();

describe.skipIf(addon === null)(`cpu backend ${reason ?? ""}`, () => {
  describeNanoGolden(
    "cpu",
    (file) => createCpuBackend(file, addon!),
    {
      lastLogits: 2e-3,
      nllRelative: 1e-3,
      argmaxAgreement: 0.995,
      activations: 2e-3,
      expertWeights: 1e-4,
      choices: 0.001,
    },
    [
      { name: "greet" },
      { name: "capital", chunkTokens: 5 },
      { name: "think" },
      { name: "tools", chunkTokens: 100 },
      { name: "verse", chunkTokens: 509 },
    ],
  );
});
