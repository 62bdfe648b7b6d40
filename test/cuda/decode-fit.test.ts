// Published models decode by chains on the devices that people own: every step has room for its weights in the blocks' shared memory.
import { describe, expect, it } from "vitest";
import { canStream } from "../../src/backend/cuda/decode-fit.ts";
import { chainShape } from "../../src/backend/cuda/decode-plans.ts";
import type { DeviceBuffer } from "../../src/backend/cuda/device-memory.ts";
import type { DeviceInfo } from "../../src/backend/cuda/driver.ts";
import { type DeviceMatrix, placedMatrix } from "../../src/backend/cuda/matrix.ts";
import type { CudaModelWeights } from "../../src/backend/cuda/pass.ts";
import { modelWeights } from "../../src/backend/layer-weights.ts";
import {
  PUBLISHED_ALIASES,
  type PublishedAlias,
  publishedModel,
} from "../../src/convert/published-models.ts";
import { KIB } from "../../src/core/units.ts";
import { planWeights } from "../../src/plan/weight-layout.ts";

/** Multiprocessors, and shared memory of one and of a block in KiB (CUDA programming guide, table of compute capabilities). */
const DEVICES = {
  GB10: [48, 100, 99],
  "RTX 5090": [170, 100, 99],
  "RTX 4090": [128, 100, 99],
  "RTX 3090": [82, 100, 99],
  "RTX PRO 6000": [188, 100, 99],
  A100: [108, 164, 163],
  H200: [132, 228, 227],
  B200: [148, 228, 227],
} as const;

function deviceInfo([multiprocessors, ofMultiprocessor, ofBlock]: readonly [
  number,
  number,
  number,
]): DeviceInfo {
  return {
    multiprocessors,
    sharedBytesPerMultiprocessor: ofMultiprocessor * KIB,
    sharedBytesPerBlock: ofBlock * KIB,
  } as DeviceInfo;
}

const BUFFER = { bytes: 1 << 20, slice: () => BUFFER } as unknown as DeviceBuffer;

/** Weights of a published model, without bytes. */
function publishedWeights(alias: PublishedAlias): CudaModelWeights {
  const model = publishedModel(alias);
  const placed = planWeights(model).matrices.map((each) => {
    return [each.tensor.name, placedMatrix(each, BUFFER)] as const;
  });
  const matrices = new Map(placed);
  return modelWeights<DeviceMatrix, DeviceBuffer, DeviceBuffer>(model, {
    matrix: ({ name }) => matrices.get(name)!,
    floats: () => BUFFER,
    ints: () => BUFFER,
  });
}

describe.each(PUBLISHED_ALIASES)("%s", (alias) => {
  const weights = publishedWeights(alias);

  it.each(Object.entries(DEVICES))("is decoded by chains on %s", (_, limits) => {
    expect(canStream(weights, BUFFER, chainShape(deviceInfo(limits)))).toBe(true);
  });

  it("is not where blocks have too little shared memory, or are too few", () => {
    expect(canStream(weights, BUFFER, chainShape(deviceInfo([68, 64, 63])))).toBe(false);
    expect(canStream(weights, BUFFER, chainShape(deviceInfo([2, 100, 99])))).toBe(false);
  });
});
