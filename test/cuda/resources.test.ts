// What the compiler says of the kernels on a DGX Spark (GB10), where nvcc exists: no register spills to memory, and all fit.
import { spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { text } from "node:stream/consumers";
import { describe, expect, it } from "vitest";

const ARCH = "121";
/** Of a block on GB10, without permission; and registers of a thread. */
const STATIC_SHARED_BYTES = 48 * 1024;
const THREAD_REGISTERS = 255;
/** Files that changed since then are compiled again. */
const TIMEOUT_MS = 900_000;

interface KernelRow {
  kernel: string;
  registers: number;
  spillBytes: number;
  sharedBytes: number;
}

async function kernelRows(): Promise<KernelRow[]> {
  const args = ["scripts/cuda-resources.mjs", "--arch", ARCH, "--json"];
  return JSON.parse(
    await text(spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] }).stdout),
  );
}

const nvcc = process.env.NVCC || "nvcc";
// All kernels take minutes to compile: `npm run build:cuda` or `npm run cuda:resources` comes first, as in CI.
const isBuilt = ["all", `resources-${ARCH}`].some((name) => existsSync(`build/cuda/objects/${name}`));
const canCompile = spawnSync(nvcc, ["--version"]).status === 0;

describe.skipIf(!(isBuilt && canCompile))(`kernels compiled for sm_${ARCH}`, () => {
  it("spill nothing and fit", { timeout: TIMEOUT_MS }, async () => {
    const rows = await kernelRows();
    const names = rows.map(({ kernel }) => kernel);
    expect(names).toEqual(expect.arrayContaining(["attend_16x1", "attend_16x2", "decode_rows", "compress"]));
    expect(rows.filter(({ spillBytes }) => spillBytes > 0)).toEqual([]);
    expect(rows.filter(({ registers }) => registers < 1 || registers > THREAD_REGISTERS)).toEqual([]);
    expect(rows.filter(({ sharedBytes }) => sharedBytes > STATIC_SHARED_BYTES)).toEqual([]);
  });
});
