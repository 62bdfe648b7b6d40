// Feeds damaged files to everything that reads them: the parser, files and splits on disk, the model reader, the
// tokenizer, inspect. Whatever comes in, only typed errors may come out, soon, and without memory to match a lie.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspectReport } from "../../src/cli/inspect-report.ts";
import { formatInspect, inspectJson } from "../../src/cli/inspect-text.ts";
import { Ds4Error } from "../../src/core/errors.ts";
import type { GgufFile, MetadataValue } from "../../src/gguf/gguf-file.ts";
import { memoryByteSource } from "../../src/gguf/memory-source.ts";
import { openGguf } from "../../src/gguf/open-gguf.ts";
import { parseGguf } from "../../src/gguf/parse-gguf.ts";
import { readModelSpec } from "../../src/model/spec-reader.ts";
import { bindModel } from "../../src/model/weights.ts";
import { tokenizerFromGguf } from "../../src/tokenizer/gguf-tables.ts";
import { type BuiltGguf, buildGguf } from "../fixtures/gguf-builder.ts";
import { mulberry32 } from "../random-values.ts";
import { type FuzzBase, fuzzBases } from "./fuzz-bases.ts";
import { Choices, damage, misstate } from "./gguf-mutations.ts";

/** Longest a case may take. In processor time too, so that a busy machine is no failure. */
const MAX_CASE_MS = 1000;
/** Memory a case may take beyond the size of its file. */
const MAX_EXTRA_BYTES = 64 * 2 ** 20;
const PARTS = 3;

/** How a case reaches the reader. */
export type FuzzRoute = "memory" | "file" | "split";

/** What to run. */
export interface FuzzOptions {
  count: number;
  seed: number;
  /** First case; with `count` 1 it repeats one. Default 0. */
  start?: number;
  /** Collects garbage now and then, so that growth is the case's own. Default: none. */
  collectGarbage?: () => void;
  /** Called before each case with its index. */
  onCase?: (index: number) => void;
}

/** A case that broke a rule. */
export interface FuzzFailure {
  index: number;
  route: FuzzRoute;
  problem: string;
}

/** What came out. */
export interface FuzzSummary {
  cases: number;
  routes: Record<FuzzRoute, number>;
  /** Files accepted by each stage. */
  accepted: { container: number; model: number; tokenizer: number };
  /** Refusals by error code, of all stages. */
  refused: Record<string, number>;
  slowestMs: number;
  largestGrowthBytes: number;
  failures: FuzzFailure[];
}

/** Runs `count` cases. Case `i` of a seed is the same whatever ran before it. Leaves no files. */
export function fuzzGguf(options: FuzzOptions): FuzzSummary {
  const folder = mkdtempSync(join(tmpdir(), "ds4-fuzz-"));
  try {
    return new Fuzzer(folder).run(options);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

class Fuzzer {
  readonly #folder: string;
  readonly #bases = fuzzBases();
  readonly #built = this.#bases.map((base) => buildGguf(base.metadata, base.tensors));
  readonly #parts = this.#bases.map(splitParts);
  readonly #summary: FuzzSummary = {
    cases: 0,
    routes: { memory: 0, file: 0, split: 0 },
    accepted: { container: 0, model: 0, tokenizer: 0 },
    refused: {},
    slowestMs: 0,
    largestGrowthBytes: 0,
    failures: [],
  };

  constructor(folder: string) {
    this.#folder = folder;
  }

  run({ count, seed, start = 0, collectGarbage, onCase }: FuzzOptions): FuzzSummary {
    for (let index = start; index < start + count; index++) {
      onCase?.(index);
      if (index % 20 === 0) collectGarbage?.();
      this.#case(index, new Choices(mulberry32((Math.imul(seed, 0x9e3779b1) + index) | 0)));
    }
    return this.#summary;
  }

  #case(index: number, choices: Choices): void {
    const summary = this.#summary;
    const route = choices.pick<FuzzRoute>(["memory", "memory", "memory", "memory", "file", "split"]);
    const open = this.#prepare(route, choices);
    const cpuBefore = process.cpuUsage();
    const memoryBefore = memoryBytes();
    const startMs = performance.now();
    const problem = this.#exercise(open.open);
    const wallMs = performance.now() - startMs;
    const growthBytes = memoryBytes() - memoryBefore;
    const cpu = process.cpuUsage(cpuBefore);
    const elapsedMs = Math.min(wallMs, (cpu.user + cpu.system) / 1000);
    summary.cases++;
    summary.routes[route]++;
    summary.slowestMs = Math.max(summary.slowestMs, elapsedMs);
    summary.largestGrowthBytes = Math.max(summary.largestGrowthBytes, growthBytes);
    const fail = (text: string) => summary.failures.push({ index, route, problem: text });
    if (problem !== null) fail(problem);
    if (elapsedMs > MAX_CASE_MS) fail(`took ${elapsedMs.toFixed(0)} ms`);
    if (growthBytes > open.sizeBytes + MAX_EXTRA_BYTES) fail(`grew by ${growthBytes} bytes`);
  }

  /** Makes the damaged file and, for the routes by disk, writes it: outside the measured time. */
  #prepare(route: FuzzRoute, choices: Choices): { open: () => GgufFile; sizeBytes: number } {
    const which = choices.below(this.#bases.length);
    if (route === "split") return this.#prepareSplit(this.#parts[which], choices);
    const bytes = this.#damaged(which, choices);
    const sizeBytes = bytes.length;
    if (route === "memory") return { open: () => parseGguf(memoryByteSource(bytes, "fuzz")), sizeBytes };
    const path = join(this.#folder, "fuzz.gguf");
    writeFileSync(path, bytes);
    return { open: () => openGguf(path), sizeBytes };
  }

  #damaged(which: number, choices: Choices): Uint8Array {
    if (choices.chance(0.5)) return damage(this.#built[which], this.#built, choices);
    const metadata = new Map(this.#bases[which].metadata);
    const tensors = [...this.#bases[which].tensors];
    misstate(metadata, tensors, choices);
    return buildGguf(metadata, tensors).bytes;
  }

  /** One part is damaged, the others are whole. */
  #prepareSplit(parts: readonly BuiltGguf[], choices: Choices): { open: () => GgufFile; sizeBytes: number } {
    const victim = choices.below(PARTS);
    let sizeBytes = 0;
    const paths = parts.map((part, index) => {
      const path = join(this.#folder, `fuzz-0000${index + 1}-of-0000${PARTS}.gguf`);
      const bytes = index === victim ? damage(part, parts, choices) : part.bytes;
      sizeBytes += bytes.length;
      writeFileSync(path, bytes);
      return path;
    });
    if (choices.chance(0.05)) rmSync(paths[choices.below(PARTS)]);
    const given = choices.pick(paths);
    return { open: () => openGguf(given), sizeBytes };
  }

  /** Every reader in turn; the first thrown thing that is no typed error, or null. */
  #exercise(open: () => GgufFile): string | null {
    let file: GgufFile;
    try {
      file = open();
    } catch (error) {
      return this.#refused(error);
    }
    this.#summary.accepted.container++;
    const problems = [
      this.#stage(() => readEverything(file)),
      this.#stage(() => bindModel(file, readModelSpec(file)), "model"),
      this.#stage(() => {
        const tokenizer = tokenizerFromGguf(file);
        const tokens = tokenizer.encode("hello the <｜User｜> 中文 42\n", { allowSpecial: true });
        for (const token of tokens) tokenizer.tokenBytes(token);
      }, "tokenizer"),
    ];
    file.close();
    return problems.find((problem) => problem !== null) ?? null;
  }

  #stage(body: () => void, stage?: "model" | "tokenizer"): string | null {
    try {
      body();
      if (stage !== undefined) this.#summary.accepted[stage]++;
      return null;
    } catch (error) {
      return this.#refused(error);
    }
  }

  #refused(error: unknown): string | null {
    if (!(error instanceof Ds4Error))
      return error instanceof Error ? (error.stack ?? error.message) : String(error);
    if (error.message.length > 2000) return `a message of ${error.message.length} characters`;
    if (/[\u0000-\u001f\u007f-\u009f]/.test(error.message)) return "a message with control characters";
    this.#summary.refused[error.code] = (this.#summary.refused[error.code] ?? 0) + 1;
    return null;
  }
}

/** An accepted file can be read to the last byte, and inspected. */
function readEverything(file: GgufFile): void {
  for (const tensor of file.tensors) file.readTensor(tensor);
  const report = inspectReport(file);
  formatInspect(report, { tensors: true });
  inspectJson(report);
}

/** The base as three parts, metadata in the first. */
function splitParts({ metadata, tensors }: FuzzBase): BuiltGguf[] {
  const share = Math.ceil(tensors.length / PARTS);
  return Array.from({ length: PARTS }, (_, part) => {
    const entries = new Map<string, MetadataValue>(part === 0 ? metadata : []);
    entries.set("split.no", { type: "u16", value: part });
    entries.set("split.count", { type: "u16", value: PARTS });
    entries.set("split.tensors.count", { type: "i32", value: tensors.length });
    return buildGguf(entries, tensors.slice(part * share, (part + 1) * share));
  });
}

function memoryBytes(): number {
  const { heapUsed, external } = process.memoryUsage(); // external includes array buffers
  return heapUsed + external;
}
