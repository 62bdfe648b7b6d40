// Finds CUPTI and compiles kernel-trace.cpp against its headers.
import { spawnSync } from "node:child_process";
import { existsSync, globSync, readFileSync, realpathSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { Ds4Error } from "../../../src/core/errors.ts";

/** CUPTI of one CUDA toolkit. */
export interface Cupti {
  /** Folders with cupti.h and cuda.h. */
  includes: string[];
  /** libcupti.so. */
  library: string;
  /** The struct of a kernel's record in these headers. */
  kernelRecord: string;
}

const INCLUDES = ["include", "extras/CUPTI/include", "targets/*/include"];
const LIBRARIES = ["extras/CUPTI/lib64", "lib64", "lib", "targets/*/lib", "lib/*-linux-gnu"];
const MOST_RECORDS = 2 ** 22;
const MOST_KERNELS_PER_TOKEN = 4096;

/**
 * Headers and library of CUPTI, both out of the same folder: `toolkit`, or without it the usual places. Throws `usage`
 * naming what is missing and where it was looked for.
 */
export function findCupti(toolkit?: string): Cupti {
  const roots = toolkit === undefined ? usualPlaces() : [toolkit];
  for (const root of roots) {
    const [cupti, cuda] = ["cupti.h", "cuda.h"].map((name) => firstFile(root, INCLUDES, name));
    const library = firstFile(root, LIBRARIES, "libcupti.so*");
    if (cupti === undefined || cuda === undefined || library === undefined) continue;
    const includes = [...new Set([dirname(cupti), dirname(cuda)])];
    return { includes, library, kernelRecord: newestRecord(dirname(cupti)) };
  }
  throw new Ds4Error(
    "usage",
    `cuda:trace needs CUPTI: cupti.h, cuda.h and libcupti.so of one CUDA toolkit, found in none of ${roots.join(", ")}; ` +
      "install the toolkit with CUPTI (its package cuda-cupti-dev), or name its folder with --toolkit DIR",
  );
}

function usualPlaces(): string[] {
  const { CUDA_HOME, CUDA_PATH, PATH = "" } = process.env;
  const compilers = PATH.split(delimiter).map((folder) => join(folder, "nvcc"));
  const beside = compilers.filter(existsSync).map((path) => dirname(dirname(realpathSync(path))));
  return [...new Set([CUDA_HOME, CUDA_PATH, "/usr/local/cuda", ...beside, "/usr"])].filter(
    (root) => root !== undefined && root !== "",
  ) as string[];
}

function firstFile(root: string, folders: readonly string[], name: string): string | undefined {
  for (const folder of folders) {
    const [found] = globSync(`${folder}/${name}`, { cwd: root }).sort();
    if (found !== undefined) return join(root, found);
  }
  return undefined;
}

/** Records that a CUPTI delivers have the newest layout that its headers know. */
function newestRecord(include: string): string {
  const text = readFileSync(join(include, "cupti_activity.h"), "utf8");
  const versions = [...text.matchAll(/\}\s*CUpti_ActivityKernel(\d+)\s*;/g)].map(([, version]) =>
    Number(version),
  );
  if (versions.length > 0) return `CUpti_ActivityKernel${Math.max(...versions)}`;
  throw new Ds4Error(
    "usage",
    `${include}/cupti_activity.h: expected a record CUpti_ActivityKernelN, found none; name another toolkit with --toolkit DIR`,
  );
}

/** Compiles a source of this folder as a shared library. Throws `native` with the compiler's words. */
export function compileForCupti(source: string, cupti: Cupti, output: string): void {
  const compiler = process.env.CXX || "c++";
  const args = [
    ...["-std=c++20", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC"],
    ...cupti.includes.map((folder) => `-isystem${folder}`),
    `-DDS4_KERNEL_RECORD=${cupti.kernelRecord}`,
    ...["-o", output, join(import.meta.dirname, source), "-ldl"],
  ];
  const built = spawnSync(compiler, args, { encoding: "utf8" });
  if (built.error !== undefined) {
    throw new Ds4Error(
      "native",
      `${compiler} does not run (${built.error.message}): cuda:trace needs a C++20 compiler`,
    );
  }
  if (built.status !== 0) throw new Ds4Error("native", `${compiler} ${args.join(" ")}\n${built.stderr}`);
}

/** What a process is started with, so that libcuda loads the library and it knows its work. */
export function traceEnvironment(library: string, cupti: Cupti, csv: string, tokens: number) {
  return {
    CUDA_INJECTION64_PATH: library,
    DS4_CUPTI: process.env.DS4_CUPTI || cupti.library,
    DS4_TRACE_CSV: csv,
    DS4_TRACE_RECORDS: String(Math.min(MOST_RECORDS, (tokens + 4) * MOST_KERNELS_PER_TOKEN)),
  };
}
