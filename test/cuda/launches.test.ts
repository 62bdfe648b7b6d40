// Every launch of a whole pass names a kernel that exists in native/cuda and passes the parameters that it takes, of the
// right kinds, with buffers that lie within allocations. What the kernels compute is checked on a GPU.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { createCudaBackend } from "../../src/backend/cuda/cuda-backend.ts";
import { loadNative } from "../../src/backend/native.ts";
import { FAKE_IMAGE, FakeDriver } from "../fixtures/fake-driver.ts";
import { tinyModel } from "../fixtures/tiny-model.ts";

const { addon, reason } = loadNative();
const SOURCES = join(import.meta.dirname, "..", "..", "native", "cuda");

/** The kind of argument (a key of `KernelArg`) for a parameter's declaration. */
function kindOf(parameter: string): string {
  if (parameter.includes("*")) return "p";
  const type = parameter
    .replace(/\b(const|__grid_constant__)\b/g, "")
    .trim()
    .split(/\s+/)[0];
  return { int: "i32", int32_t: "i32", int64_t: "i64", float: "f32" }[type] ?? "struct";
}

/** Kernel name to the kinds of its parameters. */
function kernelParameters(): Map<string, string[]> {
  const kernels = new Map<string, string[]>();
  for (const file of readdirSync(SOURCES).filter((name) => name.endsWith(".cu"))) {
    const source = readFileSync(join(SOURCES, file), "utf8")
      .replace(/\/\/.*$/gm, "")
      .replace(/\\\n/g, " ");
    const macros = new Map(
      [...source.matchAll(/^#define (\w+)\s+(.*)$/gm)].map(([, name, text]) => [name, text]),
    );
    const pattern = /extern "C" __global__ void(?:\s+__launch_bounds__\([^)]*\))?\s+(\w+)\(([^)]*)\)/g;
    for (const [, name, parameters] of source.matchAll(pattern)) {
      kernels.set(name, (macros.get(parameters) ?? parameters).split(",").map(kindOf));
    }
  }
  return kernels;
}

describe.skipIf(addon === null)(`launches ${reason ?? ""}`, () => {
  const kernels = kernelParameters();

  it("finds the kernels of the sources", () => {
    expect(kernels.size).toBeGreaterThan(20);
    expect(kernels.get("probeDevice")).toEqual(["p", "i32", "i32"]);
  });

  it.each([
    ["one token", [1]],
    ["a prompt", [150]],
    ["two sequences", [3, 40]],
    ["sixteen sequences", Array.from({ length: 16 }, () => 1)],
  ])("%s", (_name, counts) => {
    const driver = new FakeDriver();
    const options = { driver, kernelImage: FAKE_IMAGE, maxBatchTokens: 200 };
    const backend = createCudaBackend(tinyModel(), addon!, options);
    const states = counts.map(() => backend.createKv(256));
    const pass = () => {
      const ranges = counts.map((count, i) => {
        const logits = i % 2 === 0 ? "top" : "last";
        return { kv: states[i], tokens: new Int32Array(count).fill(1), logits } as const;
      });
      // The fake computes nothing, so logits are zeros or leftovers: only the launches count.
      backend.forward(ranges);
    };
    pass();
    if (counts[0] === 1) for (let i = 0; i < 12; i++) pass();
    const launches = driver.calls.filter(({ method }) => method === "launch");
    expect(launches.length).toBeGreaterThan(50);
    for (const { kernel, args } of launches) {
      expect(
        args!.map((arg) => Object.keys(arg)[0]),
        kernel,
      ).toEqual(kernels.get(kernel!));
    }
    backend.close();
    expect(driver.leaks).toEqual([]);
  });
});
