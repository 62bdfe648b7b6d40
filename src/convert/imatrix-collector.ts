// Gathers an importance matrix: how strongly each input column of each matrix is driven while a model reads sample
// text. The sums stay in memory: 450 MB for a model of V4-Flash's shape.
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Backend, KvState } from "../backend/backend.ts";
import { CancelledError, Ds4Error } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import type { ImatrixEntry } from "./imatrix-file.ts";

/** Sums up what a backend's `observeInputs` reports. */
export class ImatrixCollector {
  readonly #file: Pick<GgufFile, "name" | "tensor">;
  readonly #entries = new Map<string, ImatrixEntry>();

  /** `file` gives columns and experts of the tensors that the backend will name. */
  constructor(file: Pick<GgufFile, "name" | "tensor">) {
    this.#file = file;
  }

  /**
   * Adds rows of inputs; pass it as `observeInputs`. `expert` is -1 for matrices without experts. Throws `convert`
   * for values that are not finite, which a whole matrix must not be spoilt by.
   */
  readonly observe = (tensorName: string, expert: number, inputs: Float32Array, rows: number): void => {
    const { sums, counts } = this.#entry(tensorName);
    const columns = sums.length / counts.length;
    const slot = Math.max(0, expert);
    const own = sums.subarray(slot * columns, (slot + 1) * columns);
    let total = 0;
    for (let row = 0; row < rows; row++) {
      const from = row * columns;
      for (let column = 0; column < columns; column++) {
        const square = inputs[from + column] * inputs[from + column];
        own[column] += square;
        total += square;
      }
    }
    counts[slot] += rows;
    if (Number.isFinite(total)) return;
    const where = expert < 0 ? "" : `, expert ${expert}`;
    throw new Ds4Error(
      "convert",
      `${this.#file.name}: the inputs of ${quotedText(tensorName)}${where} are not finite on this text; ` +
        "the model or the text is damaged",
    );
  };

  /** What was gathered so far, in the order in which tensors were first seen. Not copied. */
  entries(): ImatrixEntry[] {
    return [...this.#entries.values()];
  }

  #entry(name: string): ImatrixEntry {
    const known = this.#entries.get(name);
    if (known !== undefined) return known;
    const tensor = this.#file.tensor(name);
    if (tensor === undefined)
      throw new Ds4Error(
        "convert",
        `${this.#file.name} has no tensor ${quotedText(name)}, but its backend used one`,
      );
    const [columns, , experts = 1] = tensor.dims;
    const entry = { name, sums: new Float32Array(columns * experts), counts: new Float32Array(experts) };
    this.#entries.set(name, entry);
    return entry;
  }
}

/** How the text is read. */
export interface CollectOptions {
  /** Tokens of the text. */
  tokens: Int32Array;
  /** Each window starts with this token, from an empty state. */
  bosId: number;
  /** Tokens per window, begin token included; at least 2. */
  windowTokens: number;
  /** Tokens per forward call. */
  chunkTokens: number;
  signal?: { readonly aborted: boolean };
  onProgress?: ProgressListener;
}

/** Cuts the text into windows that start with the begin token; a text that has it there keeps its own. */
export function textWindows({
  tokens,
  bosId,
  windowTokens,
}: Pick<CollectOptions, "tokens" | "bosId" | "windowTokens">): Int32Array[] {
  const windows: Int32Array[] = [];
  for (let at = 0; at < tokens.length; ) {
    const start = tokens[at] === bosId ? at + 1 : at;
    const end = Math.min(tokens.length, start + windowTokens - 1);
    windows.push(Int32Array.of(bosId, ...tokens.subarray(start, end)));
    at = end;
  }
  return windows;
}

/**
 * Runs the text through the model and hands every matrix's inputs to the collector, except the output head's: no
 * logits are computed. Returns the number of windows. Throws `usage` for a text without tokens, `cancelled`, what the
 * collector throws and what the backend throws.
 */
export async function collectImatrix(
  backend: Backend,
  collector: ImatrixCollector,
  options: CollectOptions,
): Promise<number> {
  const windows = textWindows(options);
  if (windows.length === 0) throw new Ds4Error("usage", "the text is empty: nothing can be collected");
  const kv = backend.createKv(Math.max(...windows.map((window) => window.length)));
  const total = windows.reduce((sum, window) => sum + window.length, 0);
  let done = 0;
  try {
    for (const [index, window] of windows.entries()) {
      kv.reset();
      for await (const count of feed(backend, kv, window, options, collector)) {
        done += count;
        const detail = `window ${index + 1} of ${windows.length}`;
        options.onProgress?.({ label: "imatrix", done, total, unit: "tokens", detail });
      }
    }
  } finally {
    kv.close();
  }
  return windows.length;
}

/** Evaluates a window in chunks; gives the size of each when it is done. */
async function* feed(
  backend: Backend,
  kv: KvState,
  window: Int32Array,
  { chunkTokens, signal }: CollectOptions,
  collector: ImatrixCollector,
): AsyncGenerator<number> {
  const step = Math.min(chunkTokens, backend.maxBatchTokens);
  for (let at = 0; at < window.length; at += step) {
    await nextTurn(); // lets Ctrl+C arrive
    if (signal?.aborted) throw new CancelledError("cancelled; no importance matrix was written");
    const tokens = window.subarray(at, at + step);
    backend.forward([{ kv, tokens, logits: "none" }], { observeInputs: collector.observe });
    yield tokens.length;
  }
}

/** Experts of all layers, and how many of them no token reached: those are quantized without importance. */
export function expertCoverage(entries: readonly ImatrixEntry[]): {
  expertCount: number;
  unseenCount: number;
} {
  const counts = entries
    .filter(({ name }) => name.endsWith("ffn_down_exps.weight"))
    .flatMap((entry) => Array.from(entry.counts));
  return { expertCount: counts.length, unseenCount: counts.filter((count) => count === 0).length };
}
