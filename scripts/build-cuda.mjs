// Compiles native/cuda/*.cu for every supported GPU: npm run build:cuda [-- --arch 90a[,121]] [--ptx 80] [--dry-run].
// With --ptx alone the driver compiles that architecture's code for whatever GPU is there: so a newer one runs what an older one would.
// The result, build/cuda/ds4.fatbin, is one fatbin per source file, one after another (they say how long they are), so
// that files compile side by side and their helpers need no global names. build/cuda/resources.txt lists registers,
// spills and shared memory of every kernel on every architecture.
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { compile, findCompiler, newestHeaderMs, resourceRows, resourceText } from "./nvcc.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const SOURCES = join(root, "native", "cuda");
const TARGET = join(root, "build", "cuda");
/** Real architectures; "a" has Hopper's own instructions. 121 is GB10 (DGX Spark), 120 consumer Blackwell. */
const ARCHITECTURES = ["80", "86", "89", "90a", "100", "120", "121"];
/** Code that the driver compiles for GPUs newer than all of these. */
const FORWARD_ARCHITECTURE = "80";
const PARALLEL = 2;
const FLAGS = ["-std=c++17", "-O3", "-Xptxas", "-v", "-I", join(root, "native")];

const { values } = parseArgs({
  options: {
    arch: { type: "string" },
    ptx: { type: "string" },
    "dry-run": { type: "boolean" },
    // Says where nvcc is missing instead of failing, for machines without the toolkit.
    optional: { type: "boolean" },
  },
});

/** Of real architectures and, where there is one, of code that the driver compiles. */
function codeFlags(architectures, forward) {
  const real = architectures.flatMap((arch) => ["-gencode", `arch=compute_${arch},code=sm_${arch}`]);
  if (forward === undefined) return real;
  return [...real, "-gencode", `arch=compute_${forward},code=compute_${forward}`];
}

/** What the flags ask for: all, or what they name. */
function chosenArchitectures({ arch, ptx }) {
  const isAll = arch === undefined && ptx === undefined;
  const architectures = isAll ? ARCHITECTURES : (arch?.split(",") ?? []);
  for (const [flag, found] of [...architectures.map((each) => ["arch", each]), ["ptx", ptx]]) {
    if (found !== undefined && !/^\d+[af]?$/.test(found))
      throw new Error(`--${flag}: expected numbers such as 90a or 121, found "${found}"`);
  }
  const forward = isAll ? FORWARD_ARCHITECTURE : ptx;
  const names = architectures.map((each) => `sm_${each}`);
  if (forward !== undefined) names.push(`PTX ${forward}`);
  const tag = [...architectures, ...(ptx === undefined ? [] : [`ptx${ptx}`])].join("-");
  return { architectures, forward, names, tag: isAll ? "all" : tag };
}

async function main() {
  const { architectures, forward, names, tag } = chosenArchitectures(values);
  const files = existsSync(SOURCES)
    ? readdirSync(SOURCES)
        .filter((name) => name.endsWith(".cu"))
        .sort()
    : [];
  if (files.length === 0) throw new Error("native/cuda holds no .cu files");
  const code = codeFlags(architectures, forward);
  const objects = join(TARGET, "objects", tag);
  const jobs = files.map((name) => {
    const object = join(objects, `${basename(name, ".cu")}.fatbin`);
    return { name, object, args: ["-fatbin", ...FLAGS, ...code, "-o", object, join(SOURCES, name)] };
  });
  if (values["dry-run"]) {
    for (const { args } of jobs) console.log(["nvcc", ...args].join(" "));
    return;
  }
  const compiler = findCompiler();
  if (compiler === null) {
    const text = "nvcc was not found: install the CUDA toolkit (12.9 or newer) or set NVCC";
    if (!values.optional) throw new Error(text);
    console.log(`skipped: ${text}`);
    return;
  }
  mkdirSync(objects, { recursive: true });
  const headersMs = Math.max(newestHeaderMs(), statSync(fileURLToPath(import.meta.url)).mtimeMs);
  const waiting = [...jobs];
  const worker = async () => {
    for (let job = waiting.shift(); job !== undefined; job = waiting.shift())
      await build(compiler, job, headersMs);
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  finish(jobs, names);
}

async function build(compiler, { name, object, args }, headersMs) {
  const log = `${object}.log`;
  const sourceMs = Math.max(headersMs, statSync(join(SOURCES, name)).mtimeMs);
  if (existsSync(object) && existsSync(log) && statSync(object).mtimeMs > sourceMs) return;
  const started = performance.now();
  let messages;
  try {
    messages = await compile(compiler, args);
  } catch (error) {
    throw new Error(`${name} does not compile:\n${error.message}`);
  }
  writeFileSync(log, messages);
  console.log(`${name}: ${((performance.now() - started) / 1000).toFixed(1)} s`);
}

function finish(jobs, names) {
  const image = Buffer.concat(jobs.map(({ object }) => readFileSync(object)));
  const megabytes = `${(image.length / 2 ** 20).toFixed(1)} MiB`;
  writeFileSync(join(TARGET, "ds4.fatbin"), image);
  const rows = jobs.flatMap(({ name, object }) => resourceRows(name, readFileSync(`${object}.log`, "utf8")));
  writeFileSync(join(TARGET, "resources.txt"), resourceText(rows));
  const spilling = rows.filter((row) => row.spillBytes > 0);
  const kernels = new Set(rows.map((row) => row.kernel)).size;
  console.log(
    `build/cuda/ds4.fatbin: ${megabytes}, ${kernels} kernels for ` +
      `${names.join(", ")}; ${spilling.length} of ${rows.length} spill registers`,
  );
  for (const row of spilling) console.log(`  spills ${row.spillBytes} bytes: ${row.kernel} on ${row.arch}`);
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
