// The CPU backend: native kernels with weights in one arena, ordered by TypeScript.
import { availableParallelism } from "node:os";
import { MemoryError, UsageError } from "../../core/errors.ts";
import type { GgufFile } from "../../gguf/gguf-file.ts";
import { ropeFrequencies } from "../../model/rope-frequencies.ts";
import { type BoundModel, bindModel } from "../../model/weights.ts";
import { CPU_BATCH_TOKENS } from "../../plan/scratch-size.ts";
import { weightBytesPerToken } from "../../plan/token-traffic.ts";
import { workspaceCounts } from "../../plan/workspace-size.ts";
import { type LoadOptions, loadWeights, type ResidentWeights } from "../../residency/load-weights.ts";
import type { Backend, ForwardOptions, ForwardResult } from "../backend.ts";
import {
  allocateArrays,
  BackendBase,
  type HeldBytes,
  MAX_BATCH_TOKENS,
  wholeOption,
} from "../backend-base.ts";
import { modelWeights } from "../layer-weights.ts";
import type { NativeAddon } from "../native.ts";
import { type NativeKernels, nativeKernels, type Workspace } from "../native-kernels.ts";
import type { TokenBatch } from "../token-batch.ts";
import { forwardBatch, type HeadBuffers } from "./forward.ts";
import { CpuKv } from "./kv-state.ts";
import type { ModelWeights } from "./layer-weights.ts";
import type { RopeFrequencies } from "./pass.ts";
import { allocateScratch, type Scratch } from "./scratch.ts";

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
      scratch: allocateArrays(`batches of ${maxBatchTokens} tokens`, () =>
        allocateScratch(model.spec, maxBatchTokens),
      ),
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

class CpuBackend extends BackendBase<CpuKv, CpuParts> {
  readonly name = "cpu";
  readonly description: string;
  readonly #frequencies: RopeFrequencies;
  readonly #head: HeadBuffers = {
    streams: new Float32Array(0),
    x: new Float32Array(0),
    logits: new Float32Array(0),
  };

  constructor(parts: CpuParts) {
    super(parts, parts.weights.spec, parts.maxBatchTokens);
    this.description = parts.description;
    const { rope } = this.spec;
    this.#frequencies = { plain: ropeFrequencies(rope, false), stretched: ropeFrequencies(rope, true) };
  }

  protected allocateKv({ workspace, model }: CpuParts, capacityTokens: number): CpuKv {
    const { spec, maxBatchTokens } = this;
    reserveWorkspace(workspace, model, capacityTokens, maxBatchTokens);
    return allocateArrays(
      `a KV state of ${capacityTokens} tokens`,
      () => new CpuKv(spec, capacityTokens, maxBatchTokens, (closed) => this.forget(closed)),
    );
  }

  protected compute(parts: CpuParts, batch: TokenBatch<CpuKv>, options: ForwardOptions): ForwardResult {
    const { kernels, workspace, weights, scratch } = parts;
    const { spec } = this;
    const tokens = batch.tokens.length;
    const frequencies = this.#frequencies;
    const pass = { kernels, workspace, spec, scratch, batch, tokens, frequencies, options };
    return forwardBatch(pass, weights, this.#head);
  }

  protected heldBytes({ resident, workspace, scratch, weightBytesPerToken }: CpuParts): HeldBytes {
    const arrays = [...Object.values(scratch), ...Object.values(this.#head)];
    return {
      weightBytes: resident.bytes,
      scratchBytes: arrays.reduce((total, array) => total + array.byteLength, workspace.bytes),
      weightBytesPerToken,
    };
  }

  protected release({ resident, workspace }: CpuParts, states: readonly CpuKv[]): void {
    for (const state of states) state.close();
    resident.close();
    workspace.close();
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
    workspace.reserve(counts);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new MemoryError(
      `no memory for batches of ${batchTokens} tokens: ${reason}`,
      Number.NaN,
      Number.NaN,
    );
  }
}

/** Asks for the kernel level first: a wrong DS4_CPU_ISA ends here, before any memory is taken. */
function kernelLevel(kernels: NativeKernels): string {
  try {
    return kernels.kernelLevelName();
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}
