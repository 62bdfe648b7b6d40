// The C++ kernel test (kernel-test.cpp), linked against the addon's own objects, at every level of this machine.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";

const root = resolve(import.meta.dirname, "..", "..");
const release = join(root, "build", "Release");
const objectFolders = ["common", "cpu"].map((name) => join(release, "obj.target/ds4/native", name));
const compiler = process.env.CXX ?? "c++";
const program = join(root, "build", "kernel-test", "kernel-test");
const hasCompiler = spawnSync(compiler, ["--version"]).status === 0;
// A prebuilt addon comes without objects; they are also elsewhere on macOS.
const canBuild = hasCompiler && objectFolders.every((folder) => existsSync(folder));

/** Levels that this machine must run: a kernel set that went missing is a failure, not a skip. */
function levelsHere(): string[] {
  const info = existsSync("/proc/cpuinfo") ? readFileSync("/proc/cpuinfo", "utf8") : "";
  const has = (flag: string) => new RegExp(`^(flags|Features).*\\b${flag}\\b`, "m").test(info);
  const levels = ["generic"];
  if (has("avx2") && has("fma") && has("f16c")) levels.push("avx2");
  if (has("avx512_vnni") && has("avx512_vbmi2") && has("gfni")) levels.push("avx512");
  if (has("asimddp")) levels.push("neon");
  return levels;
}

describe.skipIf(!canBuild)("kernels against double precision", () => {
  beforeAll(() => {
    mkdirSync(join(root, "build", "kernel-test"), { recursive: true });
    const files = (folder: string, end: string) =>
      readdirSync(folder)
        .filter((name) => name.endsWith(end))
        .map((name) => join(folder, name));
    const built = spawnSync(
      compiler,
      [
        ...["-std=c++20", "-O1", "-Wall", "-Wextra", "-Wno-psabi", "-I", join(root, "native")],
        ...files(import.meta.dirname, ".cpp"),
        ...objectFolders.flatMap((folder) => files(folder, ".o")),
        ...files(release, ".a"),
        ...["-pthread", "-o", program],
      ],
      { encoding: "utf8" },
    );
    if (built.status !== 0) throw new Error(`the kernel test does not build:\n${built.stderr}`);
  });

  test.each(levelsHere())("%s", (level) => {
    const result = spawnSync(program, [], { encoding: "utf8", env: { ...process.env, DS4_CPU_ISA: level } });
    expect(result.stdout).toMatch(new RegExp(`^level ${level}\\n\\d+ passed\\n$`));
    expect(result.status).toBe(0);
  });

  test("an unknown level is refused", () => {
    const env = { ...process.env, DS4_CPU_ISA: "sse9" };
    const result = spawnSync(program, [], { encoding: "utf8", env });
    expect(result.status).toBe(77);
    expect(result.stdout).toContain("expected generic, avx2, avx512 or neon");
  });
});
