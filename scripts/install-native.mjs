// Gets the native addon ready at install time: a prebuilt binary is used where present, else it is compiled
// with node-gyp. Never fails the install: without an addon the plain TypeScript backend runs, and says so.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const require = createRequire(import.meta.url);
const force = process.argv.includes("--force");

/** Path of the node-gyp program: the one npm brings, else our own devDependency; null when there is none. */
function findNodeGyp() {
  const fromNpm = process.env.npm_config_node_gyp;
  if (fromNpm && existsSync(fromNpm)) return fromNpm;
  try {
    return require.resolve("node-gyp/bin/node-gyp.js");
  } catch {
    return null;
  }
}

function hasPrebuilt() {
  return existsSync(join(root, "prebuilds", `${process.platform}-${process.arch}`));
}

function warn(reason) {
  console.warn(
    `ds4-ts: no native kernels (${reason}). The plain TypeScript backend will be used: same results, much slower.\n` +
      "        Install a C++17 compiler, make and python3, then run: npm run build:native",
  );
}

function build() {
  const nodeGyp = findNodeGyp();
  if (nodeGyp === null) return warn("node-gyp was not found");
  const jobs = String(availableParallelism());
  // Not "rebuild", which would first remove build/ with the CUDA kernels in it.
  const result = spawnSync(process.execPath, [nodeGyp, "configure", "build", "--jobs", jobs], {
    cwd: root,
    stdio: force ? "inherit" : ["ignore", "pipe", "pipe"],
    encoding: "utf8",
  });
  if (result.status === 0) return;
  if (!force) console.warn((result.stderr ?? "").split("\n").slice(-30).join("\n"));
  warn("the compiler run failed");
  if (force) process.exitCode = 1;
}

if (force || !hasPrebuilt()) build();
