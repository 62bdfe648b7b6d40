// The CUDA backend: weights, KV states and activations in device memory, kernels ordered by TypeScript.
import { availableParallelism } from "node:os";
import { Ds4Error, UsageError } from "../../core/errors.ts";
import type { KvType } from "../../core/kv-type.ts";
import type { GgufFile } from "../../gguf/gguf-file.ts";
import type { ModelSpec } from "../../model/model-spec.ts";
import { ropeFrequencies } from "../../model/rope-frequencies.ts";
import { type BoundModel, bindModel } from "../../model/weights.ts";
import { CUDA_BATCH_TOKENS } from "../../plan/scratch-size.ts";
import { weightBytesPerToken } from "../../plan/token-traffic.ts";
import type { LoadOptions } from "../../residency/load-weights.ts";
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
import { nativeKernels } from "../native-kernels.ts";
import { checkKvCapacity, layOutRanges } from "../token-batch.ts";
import { CudaError } from "./cuda-error.ts";
import { canStream } from "./decode-plans.ts";
import { DeviceMemory } from "./device-memory.ts";
import { type DeviceWeights, loadDeviceWeights } from "./device-weights.ts";
import { forwardBatch, type HostLogits } from "./forward.ts";
import type { RowParts } from "./half-rows.ts";
import { kernelSteps } from "./kernel-steps.ts";
import { CudaKv } from "./kv-state.ts";
import { closeQuietly, type DeviceOptions, type OpenDevice, openDevice } from "./open-device.ts";
import type { CudaModelWeights } from "./pass.ts";
import { CudaScratch } from "./scratch.ts";
import { StepGraphs } from "./step-graphs.ts";
import type { CudaSteps, MatrixWork } from "./steps.ts";

const MAX_BATCH_TOKENS = 8192;

/** Options of `createCudaBackend`. */
export interface CudaOptions extends LoadOptions, DeviceOptions {
  /** Threads that pack weights while loading (all that the process may use). */
  threads?: number;
  /** Most tokens of one forward call (2048). */
  maxBatchTokens?: number;
  /** Rows of keys and values ("f16"): with "f16x2" they take twice the memory and logits are the CPU's to 1e-5. */
  kvType?: KvType;
  /** For tests: what runs instead of the kernels. */
  steps?: CudaSteps;
}

/**
 * Loads a model onto a device. The file may be closed afterwards. Throws `cuda` without a usable device, `usage` for
 * impossible options, `unsupported-model` or `unsupported-type` when the file cannot be bound, `memory`, `cancelled`,
 * `native`; nothing stays allocated on failure.
 */
export function createCudaBackend(file: GgufFile, addon: NativeAddon, options: CudaOptions = {}): Backend {
  const maxBatchTokens = options.maxBatchTokens ?? CUDA_BATCH_TOKENS;
  if (!Number.isInteger(maxBatchTokens) || maxBatchTokens < 1 || maxBatchTokens > MAX_BATCH_TOKENS) {
    throw new UsageError(`maxBatchTokens: expected 1..${MAX_BATCH_TOKENS}, found ${maxBatchTokens}`);
  }
  const model = bindModel(file);
  const device = openDevice(options);
  try {
    return new CudaBackend(openParts(device, file, addon, model, { ...options, maxBatchTokens }));
  } catch (error) {
    closeQuietly(device.close);
    throw error;
  }
}

interface CudaParts {
  device: OpenDevice;
  weights: DeviceWeights;
  model: CudaModelWeights;
  scratch: CudaScratch;
  graphs: StepGraphs;
  workMemory: DeviceMemory;
  work: MatrixWork;
  steps: CudaSteps;
  maxBatchTokens: number;
  rowParts: RowParts;
  weightBytesPerToken: number;
  /** See `CudaPass`. */
  streams: boolean;
}

/** Everything that a backend holds beside the device. Nothing stays allocated on failure. */
function openParts(
  device: OpenDevice,
  file: GgufFile,
  addon: NativeAddon,
  model: BoundModel,
  options: CudaOptions & { maxBatchTokens: number },
): CudaParts {
  const { maxBatchTokens, steps = kernelSteps } = options;
  const { spec } = model;
  const { stream } = device;
  const kernels = nativeKernels(addon);
  const workspace = new kernels.Workspace(options.threads ?? availableParallelism());
  const workMemory = new DeviceMemory(device.driver);
  let weights: DeviceWeights | undefined;
  let scratch: CudaScratch | undefined;
  try {
    weights = loadDeviceWeights({ kernels, workspace, stream }, file, model, options);
    scratch = new CudaScratch(stream, { spec, device: device.device, maxBatchTokens });
    const { plain, stretched } = {
      plain: ropeFrequencies(spec.rope, false),
      stretched: ropeFrequencies(spec.rope, true),
    };
    stream.write(scratch.buffers.frequencies, Float32Array.of(...plain, ...stretched));
    const parts = workMemory.allocateParts("work", steps.workBytes(spec, maxBatchTokens));
    const roles = modelWeights(model, weights);
    return {
      ...{ device, weights, scratch, workMemory, steps, maxBatchTokens },
      rowParts: options.kvType === "f16x2" ? 2 : 1,
      graphs: new StepGraphs(stream),
      model: roles,
      streams: steps === kernelSteps && canStream(roles, parts.input),
      work: { input: { buffer: parts.input }, routing: { buffer: parts.routing } },
      weightBytesPerToken: weightBytesPerToken(model),
    };
  } catch (error) {
    for (const part of [workMemory, scratch, weights]) closeQuietly(() => part?.close());
    throw error;
  } finally {
    workspace.close();
  }
}

class CudaBackend implements Backend {
  readonly name = "cuda";
  readonly description: string;
  readonly spec: ModelSpec;
  readonly maxBatchTokens: number;
  readonly #states = new Set<CudaKv>();
  readonly #host: HostLogits = { values: new Float32Array(0) };
  readonly #owns = (kv: KvState): kv is CudaKv => kv instanceof CudaKv && this.#states.has(kv);
  #parts: CudaParts | null;
  #broken: CudaError | null = null;
  #forwardCalls = 0;
  #tokens = 0;

  constructor(parts: CudaParts) {
    this.#parts = parts;
    const { name, computeCapability } = parts.device.device;
    this.description = `${name}, compute capability ${(computeCapability / 10).toFixed(1)}`;
    this.spec = parts.model.spec;
    this.maxBatchTokens = parts.maxBatchTokens;
  }

  createKv(capacityTokens: number): KvState {
    const { device, scratch, graphs, rowParts } = this.#open();
    const { spec, maxBatchTokens } = this;
    checkKvCapacity(spec, capacityTokens);
    return this.#guard(() => {
      const owner = {
        ...{ spec, maxBatchTokens, rowParts, stream: device.stream },
        onClose: (closed: CudaKv) => this.#forget(closed),
      };
      const state = new CudaKv(owner, capacityTokens);
      try {
        graphs.clear();
        scratch.reserveEntries(mostIndexerEntries(spec, capacityTokens));
      } catch (error) {
        closeQuietly(() => state.close());
        throw error;
      }
      this.#states.add(state);
      return state;
    });
  }

  forward(ranges: readonly TokenRange[], options: ForwardOptions = {}): ForwardResult {
    const { device, steps, work, scratch, model, graphs, streams } = this.#open();
    const { spec, maxBatchTokens } = this;
    const batch = layOutRanges(ranges, { spec, maxBatchTokens, owns: this.#owns });
    const tokens = batch.tokens.length;
    if (tokens === 0) return { logits: [] };
    const pass = {
      ...{ ctx: device, steps, work, spec, scratch, buffers: scratch.buffers, batch, tokens, options },
      ...{ graphs, streams },
    };
    const logits = this.#guard(() => forwardBatch(pass, model, this.#host));
    this.#forwardCalls++;
    this.#tokens += tokens;
    return { logits };
  }

  stats(): BackendStats {
    const parts = this.#parts;
    return {
      forwardCalls: this.#forwardCalls,
      tokens: this.#tokens,
      weightBytes: parts?.weights.bytes ?? 0,
      kvBytes: [...this.#states].reduce((total, state) => total + state.bytes, 0),
      scratchBytes: (parts?.scratch.bytes ?? 0) + (parts?.workMemory.bytes ?? 0),
      weightBytesPerToken: parts?.weightBytesPerToken ?? 0,
    };
  }

  close(): void {
    if (this.#parts === null) return;
    const { device, weights, scratch, workMemory, graphs } = this.#parts;
    closeQuietly(() => graphs.clear());
    this.#parts = null;
    // After a lost device giving back fails too, and the driver has taken everything already.
    for (const part of [...this.#states, workMemory, scratch, weights, device]) {
      closeQuietly(() => part.close());
    }
  }

  /** Recorded steps hold the addresses of the states that they work on. */
  #forget(closed: CudaKv): void {
    this.#states.delete(closed);
    this.#parts?.graphs.clear();
  }

  #open(): CudaParts {
    if (this.#broken !== null) throw this.#broken;
    if (this.#parts === null) throw new Ds4Error("session", "the backend is closed");
    return this.#parts;
  }

  /** Remembers failures after which the device does not answer any more: later calls repeat them at once. */
  #guard<Result>(run: () => Result): Result {
    try {
      return run();
    } catch (error) {
      if (error instanceof CudaError && error.fatal) this.#broken = error;
      throw error;
    }
  }
}

/** Indexer entries of a full context; 0 without indexers. */
function mostIndexerEntries(spec: ModelSpec, capacityTokens: number): number {
  return spec.layers.reduce((most, { hasIndexer, compressRatio }) => {
    return hasIndexer ? Math.max(most, Math.floor(capacityTokens / compressRatio)) : most;
  }, 0);
}
