// Builds the CUDA kernels for this machine's processor: native/cuda/*.cu as C++ (test/cuda/emulation says how), beside a
// library that answers as libcuda does. `npm run cuda:emulate` and tests use it where there is no GPU.
// What lies in build/cuda-emulation is made again only where a file that it was made from differs.
import { execFile, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { promisify } from "node:util";

const ROOT = join(import.meta.dirname, "..");
const KERNELS = join(ROOT, "native", "cuda");
const EMULATION = join(ROOT, "test", "cuda", "emulation");
const TARGET = join(ROOT, "build", "cuda-emulation");
const RUNTIME = "ds4-cuda-emulation";
const PARALLEL = 2;
/** Characters of a compiler. */
const MOST_MESSAGES = 2 ** 26;
const MACHINES = ["x64", "arm64"];

const FLAGS = ["-std=c++20", "-O2", "-fPIC", "-pthread", "-I", join(ROOT, "test", "cuda")];
/** The headers of `include` stand in place of nvcc's, and of those in native/cuda that hold a GPU's instructions. */
const KERNEL_FLAGS = [
  ...["-I", join(EMULATION, "include"), "-I", join(ROOT, "native"), "-iquote", KERNELS],
  // As written: no multiplication and addition become one, and memory is read as whatever type it is asked for.
  ...["-ffp-contract=off", "-fno-strict-aliasing", "-Wno-unknown-pragmas"],
  // As nvcc does.
  ...["-include", "cuda_runtime.h"],
  // Kernel files have helpers of the same names.
  ...["-fvisibility=hidden", "-fno-gnu-unique"],
  // Calls functions of faults.cpp.
  "-fsanitize=alignment,bounds",
];

/** What fatbins begin with, so that they can be told apart; the path of a library follows in place of code. */
const IMAGE_MAGIC = 0xba55ed50;
const IMAGE_HEADER_BYTES = 16;

/** The emulated driver and kernels. */
export interface CudaEmulation {
  /** For `openCudaDriver`. */
  libraryPath: string;
  /** For `openDevice`. */
  kernelImage: Uint8Array;
}

/** Why kernels cannot be emulated here, or null. */
export function whyNoEmulation(): string | null {
  if (process.platform !== "linux") return `kernels are emulated on Linux, this is ${process.platform}`;
  if (!MACHINES.includes(process.arch))
    return `kernels are emulated on ${MACHINES.join(" and ")}, this is ${process.arch}`;
  const found = spawnSync(compiler(), ["--version"]).status === 0;
  return found ? null : `there is no ${compiler()}: install g++ or set CXX`;
}

/**
 * Builds what is not there. Throws an Error with the compiler's words, or the reason of `whyNoEmulation`.
 * `onProgress`: called with a line for each file that was compiled.
 */
export async function buildCudaEmulation(
  onProgress: (line: string) => void = () => {},
): Promise<CudaEmulation> {
  const reason = whyNoEmulation();
  if (reason !== null) throw new Error(reason);
  mkdirSync(TARGET, { recursive: true });
  const runtime = readdirSync(EMULATION)
    .filter((name) => name.endsWith(".cpp"))
    .map((name) => new Step(`${name}.o`, ["-c", join(EMULATION, name)], FLAGS));
  const kernels = kernelFiles().map((path) => {
    const unit = writeUnit(path);
    return new Step(`${basename(path)}.o`, ["-c", unit], [...FLAGS, ...KERNEL_FLAGS]);
  });
  // Kernels first: they take longest.
  await runAll([...kernels, ...runtime], onProgress);
  const libraryPath = join(TARGET, `lib${RUNTIME}.so`);
  const shared = ["-shared", "-pthread", "-Wl,-z,defs"];
  await runAll([link(`lib${RUNTIME}.so`, [...shared, `-Wl,-soname,lib${RUNTIME}.so`], runtime)], onProgress);
  const withRuntime = [...shared, "-Wl,-rpath,$ORIGIN"];
  const libraries = kernels.map((step) =>
    link(basename(step.output).replace(/\.o$/, ".so"), withRuntime, [step], [`-L${TARGET}`, `-l${RUNTIME}`]),
  );
  await runAll(libraries, onProgress);
  return { libraryPath, kernelImage: Buffer.concat(libraries.map(({ output }) => imagePart(output))) };
}

function compiler(): string {
  return process.env.CXX ?? "c++";
}

function kernelFiles(): string[] {
  return [KERNELS, EMULATION].flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.endsWith(".cu"))
      .map((name) => join(folder, name)),
  );
}

/** A kernel file as C++, followed by a list of its kernels. */
function writeUnit(path: string): string {
  const text = readFileSync(path, "utf8");
  const kernel = /extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(/g;
  const names = [...text.matchAll(kernel)].map((match) => match[1]);
  const count = text.split("__global__").length - 1;
  if (names.length !== count)
    throw new Error(`${path}: found the names of ${names.length} of ${count} kernels`);
  // The one construct that no header can give a meaning: an array whose size the launch says.
  const dynamic = /extern __shared__ (?:__align__\(\d+\) )?(\w[\w ]*) (\w+)\[\];/g;
  const source = text.replace(dynamic, "$1* $2 = reinterpret_cast<$1*>(emulation::block->dynamicMemory());");
  const lines = [
    `#line 1 "${path}"`,
    source,
    `#line 1 "${basename(path)}.cpp"`,
    `#include "emulation/kernel-table.h"`,
    "using namespace ds4::cuda;",
    "static thread_local char anchor;",
    `extern "C" __attribute__((visibility("default"))) emulation::KernelTable* ds4EmulatedKernels() {`,
    "  static emulation::KernelTable table{{[] { return static_cast<void*>(&anchor); }}, {",
    ...names.map((name) => `    emulation::makeKernel("${name}", ${name}),`),
    "  }};",
    "  return &table;",
    "}",
  ];
  const unit = join(TARGET, `${basename(path)}.cpp`);
  const wanted = `${lines.join("\n")}\n`;
  if (!existsSync(unit) || readFileSync(unit, "utf8") !== wanted) writeFileSync(unit, wanted);
  return unit;
}

function link(name: string, flags: string[], objects: Step[], libraries: string[] = []): Step {
  return new Step(name, [...objects.map(({ output }) => output), ...libraries], flags);
}

/** One run of the compiler. */
class Step {
  readonly output: string;
  readonly #args: string[];
  readonly #notes: string;

  constructor(name: string, inputs: string[], flags: string[]) {
    this.output = join(TARGET, name);
    this.#notes = `${this.output}.d`;
    const files = inputs.includes("-c") ? ["-MD", "-MF", this.#notes] : [];
    this.#args = [...flags, ...files, "-o", this.output, ...inputs];
  }

  /** Runs it unless the last run was the same. */
  async run(onProgress: (line: string) => void): Promise<void> {
    const stamp = `${this.output}.hash`;
    if (existsSync(this.output) && existsSync(stamp) && readFileSync(stamp, "utf8") === this.#hash()) return;
    const started = performance.now();
    await promisify(execFile)(compiler(), this.#args, { maxBuffer: MOST_MESSAGES });
    writeFileSync(stamp, this.#hash());
    onProgress(`${basename(this.output)}: ${((performance.now() - started) / 1000).toFixed(1)} s`);
  }

  /** Of the arguments and of all files that were read. */
  #hash(): string {
    const hash = createHash("sha256").update(JSON.stringify([compiler(), this.#args]));
    const inputs = this.#args.filter((each) => each.startsWith(TARGET) && each !== this.output);
    const noted = existsSync(this.#notes) ? readFileSync(this.#notes, "utf8") : "";
    const headers = noted.split(/[\s\\]+/).filter((each) => each.startsWith(ROOT));
    for (const path of [...inputs, ...headers].sort()) {
      if (path === this.#notes || path === this.output) continue;
      hash.update(path).update(existsSync(path) ? readFileSync(path) : "missing");
    }
    return hash.digest("hex");
  }
}

async function runAll(steps: readonly Step[], onProgress: (line: string) => void): Promise<void> {
  const waiting = [...steps];
  const worker = async () => {
    for (let step = waiting.shift(); step !== undefined; step = waiting.shift()) await step.run(onProgress);
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
}

function imagePart(library: string): Buffer {
  const path = Buffer.from(`${library}\0`);
  const header = Buffer.alloc(IMAGE_HEADER_BYTES);
  header.writeUInt32LE(IMAGE_MAGIC, 0);
  header.writeUInt16LE(1, 4);
  header.writeUInt16LE(IMAGE_HEADER_BYTES, 6);
  header.writeBigUInt64LE(BigInt(path.length), 8);
  return Buffer.concat([header, path]);
}
