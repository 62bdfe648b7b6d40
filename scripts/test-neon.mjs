// Cross-compiles the CPU kernels and their C++ test for 64-bit ARM and runs it under an emulator. Without the compiler
// or the emulator: exit code 0 and a "skipped" line, but a failure in CI (environment variable CI).
// CXX_AARCH64 and QEMU_AARCH64 name other programs; on an ARM machine the host compiler is used and nothing emulated.
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const outFolder = join(root, "build", "neon-test");
const onArm = process.arch === "arm64";
const compiler = process.env.CXX_AARCH64 ?? (onArm ? "c++" : "aarch64-linux-gnu-g++");
const emulator = onArm ? null : (process.env.QEMU_AARCH64 ?? "qemu-aarch64-static");

// The flags of binding.gyp.
const flags = [
  "-std=c++20",
  "-O3",
  "-Wall",
  "-Wextra",
  "-Wno-psabi",
  "-fno-math-errno",
  "-fno-trapping-math",
];
const includes = ["-I", join(root, "native"), "-I", join(root, "test", "native")];
const neonFlags = ["-march=armv8.2-a+dotprod+fp16"];

function isThere(program) {
  return spawnSync(program, ["--version"], { stdio: "ignore" }).status === 0;
}

function sources() {
  return ["native/common", "native/cpu", "native/cpu/isa", "test/native"].flatMap((folder) =>
    readdirSync(join(root, folder))
      .filter((name) => name.endsWith(".cpp"))
      .map((name) => join(root, folder, name)),
  );
}

/** Runs a program with its output passed through; resolves to its exit code. */
function run(program, args) {
  return new Promise((resolve) => {
    // The level is named, so that a missing kernel set fails instead of falling back to the portable one.
    const env = { ...process.env, DS4_CPU_ISA: "neon" };
    const child = spawn(program, args, { stdio: "inherit", env });
    child.on("error", () => resolve(1));
    child.on("exit", (code) => resolve(code ?? 1));
  });
}

/** Compiles all sources, as many at a time as there are cores, and links. Returns the program's path, or null. */
async function build() {
  mkdirSync(outFolder, { recursive: true });
  const queue = sources();
  const objects = [];
  let failed = false;
  const worker = async () => {
    for (let source = queue.pop(); source !== undefined && !failed; source = queue.pop()) {
      const object = join(outFolder, `${basename(dirname(source))}-${basename(source)}.o`);
      const level = basename(source).startsWith("neon") ? neonFlags : [];
      if ((await run(compiler, [...flags, ...level, ...includes, "-c", source, "-o", object])) !== 0)
        failed = true;
      objects.push(object);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  if (failed) return null;
  const program = join(outFolder, "kernel-test");
  const link = onArm ? [] : ["-static"];
  return (await run(compiler, [...objects.sort(), ...link, "-pthread", "-o", program])) === 0
    ? program
    : null;
}

const missing = [compiler, emulator].filter((program) => program !== null && !isThere(program));
if (missing.length > 0) {
  const reason = `not found: ${missing.join(", ")} (Debian: g++-aarch64-linux-gnu, qemu-user-static)`;
  console.log(process.env.CI ? `NEON kernels: failed, ${reason}` : `NEON kernels: skipped, ${reason}`);
  process.exitCode = process.env.CI ? 1 : 0;
} else {
  const program = await build();
  if (program === null) {
    console.log("NEON kernels: failed, they do not compile");
    process.exitCode = 1;
  } else {
    process.exitCode = await (emulator === null ? run(program, []) : run(emulator, [program]));
  }
}
