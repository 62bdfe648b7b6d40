// Registers, spills and shared memory of every kernel: npm run cuda:resources [-- --arch 121 --json]. No GPU is needed, only nvcc.
// Exit code 1 where a kernel spills. Messages of an earlier compilation are used while they are newer than the sources.
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { compile, findCompiler, newestHeaderMs, resourceRows, resourceText } from "./nvcc.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const SOURCES = join(root, "native", "cuda");
const OBJECTS = join(root, "build", "cuda", "objects");
const PARALLEL = 2;

/** Rows of all kernels for compute capability `arch`, e.g. "121". Throws when nvcc is missing or refuses. */
async function kernelResources(arch) {
  const compiler = findCompiler();
  if (compiler === null) throw new Error("nvcc was not found: install the CUDA toolkit or set NVCC");
  const headersMs = newestHeaderMs();
  const waiting = readdirSync(SOURCES).filter((name) => name.endsWith(".cu"));
  const rows = [];
  const worker = async () => {
    for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
      const messages = await messagesOf(compiler, name, arch, headersMs);
      rows.push(...resourceRows(name, messages).filter((row) => row.arch === `sm_${arch}`));
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  return rows;
}

async function messagesOf(compiler, name, arch, headersMs) {
  const source = join(SOURCES, name);
  const changedMs = Math.max(headersMs, statSync(source).mtimeMs);
  const own = join(OBJECTS, `resources-${arch}`);
  const log = `${basename(name, ".cu")}.fatbin.log`;
  // build:cuda leaves the messages for all architectures.
  for (const path of [join(OBJECTS, "all", log), join(OBJECTS, arch, log), join(own, log)]) {
    if (!existsSync(path) || statSync(path).mtimeMs < changedMs) continue;
    const messages = readFileSync(path, "utf8");
    if (messages.includes(`'sm_${arch}'`)) return messages;
  }
  mkdirSync(own, { recursive: true });
  const target = join(own, `${basename(name, ".cu")}.cubin`);
  const code = ["-cubin", `-arch=sm_${arch}`, "-std=c++17", "-O3", "-Xptxas", "-v"];
  const messages = await compile(compiler, [...code, "-I", join(root, "native"), "-o", target, source]);
  writeFileSync(join(own, log), messages);
  return messages;
}

async function main() {
  const { values } = parseArgs({
    options: { arch: { type: "string", default: "121" }, json: { type: "boolean" } },
  });
  const rows = await kernelResources(values.arch);
  const spilling = rows.filter(({ spillBytes }) => spillBytes > 0);
  if (values.json) {
    console.log(JSON.stringify(rows));
    return;
  }
  process.stdout.write(resourceText(rows));
  console.log(`${rows.length} kernels for sm_${values.arch}, ${spilling.length} spill registers`);
  if (spilling.length > 0) process.exitCode = 1;
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
