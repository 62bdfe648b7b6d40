// What the CUDA backend allocates on the device is at most what the memory plan says, and not much less.
import { expect, it } from "vitest";
import { partsBytes } from "../../src/backend/cuda/device-memory.ts";
import type { DeviceInfo } from "../../src/backend/cuda/driver.ts";
import { workBytes } from "../../src/backend/cuda/matrix-plans.ts";
import { HEAD_ROWS, scratchSizes } from "../../src/backend/cuda/scratch.ts";
import { selectionScratchBytes } from "../../src/backend/cuda/sequence-plans.ts";
import { resultBytes } from "../../src/backend/cuda/top-logits-steps.ts";
import { PUBLISHED_ALIASES, publishedModel } from "../../src/convert/published-models.ts";
import { findKnownMachine } from "../../src/machine/known-machines.ts";
import { planMemory, regionBytes } from "../../src/plan/memory-plan.ts";
import { CUDA_BATCH_TOKENS } from "../../src/plan/scratch-size.ts";

const LARGEST_DEVICE = { multiprocessors: 192 } as DeviceInfo;

it.each(PUBLISHED_ALIASES.flatMap((alias) => [2048, 100_000, 1_000_000].map((ctx) => [alias, ctx] as const)))(
  "scratch of %s at context %d",
  (alias, ctxTokens) => {
    const model = publishedModel(alias);
    const { spec } = model;
    const batchTokens = CUDA_BATCH_TOKENS;
    const options = { backend: "cuda", ctxTokens, slots: 1, batchTokens, headRows: 1, threads: 8 } as const;
    const plan = planMemory(alias, model, { ...options, checkpointBytes: 0 }, findKnownMachine("h200")!);
    const onHost = "scratch/results";
    const planned = regionBytes(plan, ({ owner, id }) => owner === "scratch" && id !== onHost);
    const held =
      partsBytes(scratchSizes({ spec, device: LARGEST_DEVICE, maxBatchTokens: batchTokens })) +
      partsBytes(workBytes(spec, batchTokens)) +
      partsBytes(selectionScratchBytes(LARGEST_DEVICE, spec.indexerTopK, batchTokens, ctxTokens / 4));
    expect(regionBytes(plan, ({ id }) => id === onHost)).toBe(resultBytes(HEAD_ROWS) + 4 * spec.vocabSize);
    expect(held).toBeLessThanOrEqual(planned);
    expect(planned - held).toBeLessThan(0.01 * regionBytes(plan));
  },
);
