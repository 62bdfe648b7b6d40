// The CPU backend: native kernels with weights in one arena, ordered by TypeScript.
import { availableParallelism } from "node:os";
import { Ds4Error, MemoryError, UsageError } from "../../core/errors.ts";
import type { GgufFile } from "../../gguf/gguf-file.ts";
import type { ModelSpec } from "../../model/model-spec.ts";
import { ropeFrequencies } from "../../model/rope-frequencies.ts";
import { type BoundModel, bindModel } from "../../model/weights.ts";
import { CPU_BATCH_TOKENS } from "../../plan/scratch-size.ts";
import { weightBytesPerToken } from "../../plan/token-traffic.ts";
import { workspaceCounts } from "../../plan/workspace-size.ts";
import { type LoadOptions, loadWeights, type ResidentWeights } from "../../residency/load-weights.ts";
import type {
  Backend,
  BackendStats,
  ForwardOptions,
  ForwardResult,
  KvState,
  TokenRange,
} from "../backend.ts";
import { modelWeights } from "../layer-weights.ts";
import type { NativeAddon } from "../native.ts";
import { type NativeKernels, nativeKernels, type Workspace } from "../native-kernels.ts";
import { checkKvCapacity, layOutRanges } from "../token-batch.ts";
import { forwardBatch, type HeadBuffers } from "./forward.ts";
import { CpuKv } from "./kv-state.ts";
import type { ModelWeights } from "./layer-weights.ts";
import type { RopeFrequencies } from "./pass.ts";
import { allocateScratch, type Scratch } from "./scratch.ts";

const MAX_BATCH_TOKENS = 8192;
const MAX_THREADS = 256;

/** Options of `createCpuBackend`. */
export interface CpuOptions extends LoadOptions {
  /** Compute threads (all that the process may use). */
  threads?: number;
  /** Most tokens of one forward call (512). */
  maxBatchTokens?: number;
}

/**
 * Loads a model. The file may be closed afterwards. Throws `usage` for impossible options, `unsupported-model` or
 * `unsupported-type` when it cannot be bound, `memory`, `cancelled`, `native`; nothing stays allocated on failure.
 */
export function createCpuBackend(file: GgufFile, addon: NativeAddon, options: CpuOptions = {}): Backend {
  const threads = wholeOption("threads", options.threads ?? availableParallelism(), MAX_THREADS);
  const maxBatchTokens = wholeOption(
    "maxBatchTokens",
    options.maxBatchTokens ?? CPU_BATCH_TOKENS,
    MAX_BATCH_TOKENS,
  );
  const kernels = nativeKernels(addon);
  const level = kernelLevel(kernels);
  const model = bindModel(file);
  const workspace = new kernels.Workspace(threads);
  let resident: ResidentWeights | undefined;
  try {
    resident = loadWeights(kernels, workspace, file, model, options);
    return new CpuBackend({
      kernels,
      workspace,
      resident,
      model,
      weights: modelWeights(model, resident),
      weightBytesPerToken: weightBytesPerToken(model),
      scratch: scratchFor(model.spec, maxBatchTokens),
      maxBatchTokens,
      description: `${level} kernels, ${threads} thread${threads === 1 ? "" : "s"}`,
    });
  } catch (error) {
    resident?.close();
    workspace.close();
    throw error;
  }
}

interface CpuParts {
  kernels: NativeKernels;
  workspace: Workspace;
  resident: ResidentWeights;
  model: BoundModel;
  weights: ModelWeights;
  weightBytesPerToken: number;
  scratch: Scratch;
  maxBatchTokens: number;
  description: string;
}

class CpuBackend implements Backend {
  readonly name = "cpu";
  readonly description: string;
  readonly spec: ModelSpec;
  readonly maxBatchTokens: number;
  readonly #frequencies: RopeFrequencies;
  readonly #states = new Set<CpuKv>();
  readonly #head: HeadBuffers = {
    streams: new Float32Array(0),
    x: new Float32Array(0),
    logits: new Float32Array(0),
  };
  readonly #owns = (kv: KvState): kv is CpuKv => kv instanceof CpuKv && this.#states.has(kv);
  #parts: CpuParts | null;
  #forwardCalls = 0;
  #tokens = 0;

  constructor(parts: CpuParts) {
    this.#parts = parts;
    this.description = parts.description;
    this.spec = parts.weights.spec;
    this.maxBatchTokens = parts.maxBatchTokens;
    const { rope } = this.spec;
    this.#frequencies = { plain: ropeFrequencies(rope, false), stretched: ropeFrequencies(rope, true) };
  }

  createKv(capacityTokens: number): KvState {
    const { workspace, model } = this.#open();
    checkKvCapacity(this.spec, capacityTokens);
    reserveWorkspace(workspace, model, capacityTokens, this.maxBatchTokens);
    try {
      const state = new CpuKv(this.spec, capacityTokens, this.maxBatchTokens, (closed) =>
        this.#states.delete(closed),
      );
      this.#states.add(state);
      return state;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new MemoryError(`no memory for a KV state of ${capacityTokens} tokens`, Number.NaN, Number.NaN);
    }
  }

  forward(ranges: readonly TokenRange[], options: ForwardOptions = {}): ForwardResult {
    const { kernels, workspace, weights, scratch } = this.#open();
    const { spec, maxBatchTokens } = this;
    const batch = layOutRanges(ranges, { spec, maxBatchTokens, owns: this.#owns });
    const tokens = batch.tokens.length;
    if (tokens === 0) return { logits: [] };
    const frequencies = this.#frequencies;
    const pass = { kernels, workspace, spec, scratch, batch, tokens, frequencies, options };
    const logits = forwardBatch(pass, weights, this.#head);
    this.#forwardCalls++;
    this.#tokens += tokens;
    return { logits };
  }

  stats(): BackendStats {
    const parts = this.#parts;
    const arrays = [...Object.values(parts?.scratch ?? {}), ...Object.values(this.#head)];
    return {
      forwardCalls: this.#forwardCalls,
      tokens: this.#tokens,
      weightBytes: parts?.resident.bytes ?? 0,
      kvBytes: [...this.#states].reduce((total, state) => total + state.bytes, 0),
      scratchBytes: arrays.reduce((total, array) => total + array.byteLength, parts?.workspace.bytes ?? 0),
      weightBytesPerToken: parts?.weightBytesPerToken ?? 0,
    };
  }

  close(): void {
    if (this.#parts === null) return;
    const { resident, workspace } = this.#parts;
    this.#parts = null;
    for (const state of [...this.#states]) state.close();
    resident.close();
    workspace.close();
  }

  #open(): CpuParts {
    if (this.#parts === null) throw new Ds4Error("session", "the backend is closed");
    return this.#parts;
  }
}

function scratchFor(spec: ModelSpec, maxBatchTokens: number): Scratch {
  try {
    return allocateScratch(spec, maxBatchTokens);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new MemoryError(`no memory for batches of ${maxBatchTokens} tokens`, Number.NaN, Number.NaN);
  }
}

/** Grows the native vectors to what this context and a full batch need, so that nothing grows after "ready". */
function reserveWorkspace(
  workspace: Workspace,
  model: BoundModel,
  ctxTokens: number,
  batchTokens: number,
): void {
  // More rows of logits than one are asked for by scoring alone, which grows the vectors by what the plan says.
  const counts = workspaceCounts(model, { ctxTokens, batchTokens, headRows: 1 });
  try {
    workspace.reserve(
      counts.inputValues,
      counts.sharedInputValues,
      counts.mixes,
      counts.rowToken,
      counts.slotRow,
      counts.expertBegin,
      counts.identity,
      counts.gate,
      counts.down,
    );
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new MemoryError(
      `no memory for batches of ${batchTokens} tokens: ${reason}`,
      Number.NaN,
      Number.NaN,
    );
  }
}

function wholeOption(name: string, value: number, max: number): number {
  if (Number.isInteger(value) && value >= 1 && value <= max) return value;
  throw new UsageError(`${name}: expected a whole number from 1 to ${max}, found ${value}`);
}

/** Asks for the kernel level first: a wrong DS4_CPU_ISA ends here, before any memory is taken. */
function kernelLevel(kernels: NativeKernels): string {
  try {
    return kernels.kernelLevelName();
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}
