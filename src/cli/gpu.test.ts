import { afterEach, beforeEach, expect, test } from "vitest";
import { tinyModel } from "../../test/fixtures/tiny-model.ts";
import type { Machine } from "../machine/machine.ts";
import { withGpu } from "../machine/machine.ts";
import { bindModel } from "../model/weights.ts";
import { planMemory } from "../plan/memory-plan.ts";
import { machineWithGpu, probeGpu } from "./gpu.ts";
import { chooseBackend } from "./open-backend.ts";
import { runOptions } from "./preflight.ts";

const host: Machine = {
  name: "test",
  pools: [{ id: "host", kind: "host", totalBytes: 2 ** 37, availableBytes: 2 ** 36, limits: [] }],
  ...{ swapTotalBytes: 0, swapFreeBytes: 0, tmpfsBytes: 0, isWsl: false, warnings: [] },
};
const tiny = { name: "tiny", model: bindModel(tinyModel()) };
const gpu = { ordinal: 0, integrated: false, totalBytes: 2 ** 35, freeBytes: 2 ** 34 };

let earlier: string | undefined;
beforeEach(() => {
  earlier = process.env.DS4_CUDA;
  process.env.DS4_CUDA = "off";
});
afterEach(() => {
  if (earlier === undefined) delete process.env.DS4_CUDA;
  else process.env.DS4_CUDA = earlier;
});

test("a card has a pool of its own; what shares the host's memory has the host's figures", () => {
  const card = withGpu(host, gpu);
  expect(card.pools.map(({ id, kind }) => [id, kind])).toEqual([
    ["cuda:0", "discrete"],
    ["host", "host"],
  ]);
  expect(card.pools[0].availableBytes).toBe(2 ** 34);
  const unified = withGpu(host, { ...gpu, integrated: true });
  expect(unified.pools).toEqual([{ ...host.pools[0], id: "cuda:0", kind: "unified" }]);
  const model = bindModel(tinyModel());
  for (const machine of [card, unified]) {
    const plan = planMemory("tiny", model, runOptions(model.spec, { backend: "cuda" }), machine);
    const poolOf = (wanted: string) => plan.regions.find(({ id }) => id === wanted)?.pool;
    expect(poolOf("runtime/cuda")).toBe("cuda:0");
    // The driver's own memory is the process's: on a card's machine that is the host's.
    expect(poolOf("runtime/driver")).toBe(machine === card ? "host" : "cuda:0");
  }
});

test("without a GPU --cuda is refused with the reason, and auto takes something else", () => {
  expect(probeGpu().gpu).toBeNull();
  const refusal = expect.objectContaining({
    code: "cuda",
    message: expect.stringMatching(/^no CUDA device can be used: .+ or run with --cpu$/),
  });
  expect(() => machineWithGpu(host)).toThrow(refusal);
  expect(chooseBackend("auto", tiny).name).not.toBe("cuda");
  // Without the addon that is named first.
  expect(() => chooseBackend("cuda", tiny)).toThrow(/no CUDA device|native addon/);
});
