// Import directions: the table of ARCHITECTURE.md, checked. `import type` is checked too, except where a row
// lists the folder under `types`.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");
const sourceRoot = join(root, "src");

const NATIVE_BACKEND = [
  ...["core", "blocks", "gguf", "model", "plan", "residency", "backend"],
  ...["backend/native.ts", "backend/native-kernels.ts", "backend/layer-weights.ts"],
];

/** Folder (longest match wins) → folders it may import. Every folder may import itself. */
const ALLOWED: Record<string, string[]> = {
  core: [],
  machine: ["core"],
  net: ["core"],
  download: ["core", "net"],
  bench: ["core", "net", "backend"],
  blocks: ["core"],
  gguf: ["core", "blocks"],
  tokenizer: ["core", "gguf"],
  template: ["core", "tokenizer"],
  dsml: ["core", "tokenizer", "template"],
  grammar: ["core", "tokenizer"],
  model: ["core", "blocks", "gguf"],
  plan: ["core", "blocks", "gguf", "model", "machine"],
  backend: ["core", "blocks", "model"],
  "backend/native.ts": ["core"],
  "backend/native-kernels.ts": ["core", "backend/native.ts", "plan"],
  "backend/layer-weights.ts": ["gguf", "model"],
  "backend/reference": ["core", "blocks", "gguf", "model", "backend"],
  "backend/cpu": NATIVE_BACKEND,
  "backend/cuda": NATIVE_BACKEND,
  residency: ["core", "blocks", "gguf", "model", "plan", "backend/native-kernels.ts"],
  session: ["core", "backend", "tokenizer", "template", "dsml", "grammar", "model", "gguf"],
  scheduler: ["core", "backend", "grammar", "model", "session"],
  server: ["core", "session", "template", "tokenizer", "dsml", "grammar", "scheduler"],
  api: ["core", "gguf", "tokenizer", "template", "session", "scheduler", "server"],
  convert: ["core", "blocks", "gguf", "model", "tokenizer", "backend", "backend/native.ts"],
  cli: [
    "core",
    "machine",
    "bench",
    "net",
    "download",
    "blocks",
    "gguf",
    "tokenizer",
    "template",
    "dsml",
    "grammar",
    "model",
    "plan",
    "backend",
    "backend/native.ts",
    "backend/reference",
    "backend/cpu",
    "backend/cuda",
    "residency",
    "session",
    "scheduler",
    "server",
    "api",
    "convert",
  ],
  "index.ts": [
    "server",
    "api",
    "core",
    "blocks",
    "gguf",
    "tokenizer",
    "template",
    "dsml",
    "model",
    "backend",
    "session",
    "scheduler",
    "convert",
  ],
};

/** The most specific key of ALLOWED that `path` (relative to src/) lies in. */
function roomOf(path: string): string | undefined {
  return Object.keys(ALLOWED)
    .filter((key) => path === key || path.startsWith(`${key}/`))
    .sort((a, b) => b.length - a.length)[0];
}

const problems: string[] = [];
for (const entry of readdirSync(sourceRoot, { recursive: true, encoding: "utf8" })) {
  if (!entry.endsWith(".ts") || entry.endsWith(".test.ts")) continue;
  const file = join(sourceRoot, entry);
  const room = roomOf(entry);
  if (room === undefined) {
    problems.push(`src/${entry}: lies in no folder of the table`);
    continue;
  }
  for (const match of readFileSync(file, "utf8").matchAll(/(?:from|import\()\s*"(\.[^"]+)"/g)) {
    const target = relative(sourceRoot, resolve(dirname(file), match[1]));
    const targetRoom = roomOf(target);
    if (targetRoom === room) continue;
    if (targetRoom === undefined || !ALLOWED[room].includes(targetRoom)) {
      problems.push(`src/${entry}: ${room} must not import ${target}`);
    }
  }
}
for (const problem of problems) console.error(problem);
console.log(
  `imports: ${problems.length === 0 ? "all directions allowed" : `${problems.length} not allowed`}`,
);
if (problems.length > 0) process.exitCode = 1;
