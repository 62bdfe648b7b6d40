import { createReferenceBackend } from "../../src/backend/reference/reference-backend.ts";
import { describeNanoGolden } from "./nano-golden.ts";

// The long prompt is fed in uneven chunks: it crosses windows and ratios at every remainder. The full set of prompts
// runs by scripts/check-nano.ts.
describeNanoGolden(
  "reference",
  (file) => createReferenceBackend(file),
  {
    lastLogits: 5e-4,
    nllRelative: 2e-5,
    argmaxAgreement: 0.999,
    activations: 5e-4,
    expertWeights: 1e-5,
    choices: 0.001,
  },
  [
    { name: "greet" },
    { name: "capital", chunkTokens: 5 },
    { name: "think" },
    { name: "tools" },
    { name: "verse", chunkTokens: 517 },
  ],
);
