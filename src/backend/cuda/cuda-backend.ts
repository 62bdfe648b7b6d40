// The CUDA backend: weights, KV states and activations in device memory, kernels ordered by TypeScript.
import { availableParallelism } from "node:os";
import type { KvType } from "../../core/kv-type.ts";
import type { GgufFile } from "../../gguf/gguf-file.ts";
import type { ModelSpec } from "../../model/model-spec.ts";
import { ropeFrequencies } from "../../model/rope-frequencies.ts";
import { type BoundModel, bindModel } from "../../model/weights.ts";
import { CUDA_BATCH_TOKENS } from "../../plan/scratch-size.ts";
import { weightBytesPerToken } from "../../plan/token-traffic.ts";
import type { LoadOptions } from "../../residency/load-weights.ts";
import type { Backend, ForwardOptions, ForwardResult } from "../backend.ts";
import { BackendBase, type HeldBytes, MAX_BATCH_TOKENS, wholeOption } from "../backend-base.ts";
import { modelWeights } from "../layer-weights.ts";
import type { NativeAddon } from "../native.ts";
import { nativeKernels } from "../native-kernels.ts";
import type { TokenBatch } from "../token-batch.ts";
import { CudaError } from "./cuda-error.ts";
import { openChain } from "./decode-chain.ts";
import type { ChainShape } from "./decode-plans.ts";
import { DeviceMemory } from "./device-memory.ts";
import { deviceCopyRate } from "./device-timing.ts";
import { type DeviceWeights, loadDeviceWeights } from "./device-weights.ts";
import { forwardBatch, type HostLogits } from "./forward.ts";
import type { RowParts } from "./half-rows.ts";
import { HostResults } from "./host-results.ts";
import { kernelSteps } from "./kernel-steps.ts";
import { CudaKv } from "./kv-state.ts";
import { closeQuietly, type DeviceOptions, type OpenDevice, openDevice } from "./open-device.ts";
import type { CudaModelWeights } from "./pass.ts";
import { CudaScratch } from "./scratch.ts";
import { StepGraphs } from "./step-graphs.ts";
import type { CudaSteps, MatrixWork } from "./steps.ts";

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
  const maxBatchTokens = wholeOption(
    "maxBatchTokens",
    options.maxBatchTokens ?? CUDA_BATCH_TOKENS,
    MAX_BATCH_TOKENS,
  );
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
  host: HostLogits;
  graphs: StepGraphs;
  workMemory: DeviceMemory;
  work: MatrixWork;
  steps: CudaSteps;
  maxBatchTokens: number;
  rowParts: RowParts;
  weightBytesPerToken: number;
  /** See `CudaPass`. */
  chain: ChainShape | null;
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
  let pinned: HostResults | undefined;
  try {
    weights = loadDeviceWeights({ kernels, workspace, stream }, file, model, options);
    scratch = new CudaScratch(stream, { spec, device: device.device, maxBatchTokens });
    pinned = new HostResults(stream, spec.vocabSize);
    const { plain, stretched } = {
      plain: ropeFrequencies(spec.rope, false),
      stretched: ropeFrequencies(spec.rope, true),
    };
    stream.write(scratch.buffers.frequencies, Float32Array.of(...plain, ...stretched));
    const parts = workMemory.allocateParts("work", steps.workBytes(spec, maxBatchTokens));
    const roles = modelWeights(model, weights);
    return {
      ...{ device, weights, scratch, workMemory, steps, maxBatchTokens },
      host: { pinned, values: new Float32Array(0) },
      rowParts: options.kvType === "f16x2" ? 2 : 1,
      graphs: new StepGraphs(stream),
      model: roles,
      chain: steps === kernelSteps ? openChain(device, roles, parts.input) : null,
      work: { input: { buffer: parts.input }, routing: { buffer: parts.routing } },
      weightBytesPerToken: weightBytesPerToken(model),
    };
  } catch (error) {
    for (const part of [workMemory, pinned, scratch, weights]) closeQuietly(() => part?.close());
    throw error;
  } finally {
    workspace.close();
  }
}

class CudaBackend extends BackendBase<CudaKv, CudaParts> {
  readonly name = "cuda";
  readonly description: string;
  readonly #graphs: StepGraphs;
  #broken: CudaError | null = null;

  constructor(parts: CudaParts) {
    super(parts, parts.model.spec, parts.maxBatchTokens);
    this.#graphs = parts.graphs;
    const { name, computeCapability } = parts.device.device;
    this.description = `${name}, compute capability ${(computeCapability / 10).toFixed(1)}`;
  }

  protected override open(): CudaParts {
    if (this.#broken !== null) throw this.#broken;
    return super.open();
  }

  protected allocateKv({ device, scratch, graphs, rowParts }: CudaParts, capacityTokens: number): CudaKv {
    const { spec, maxBatchTokens } = this;
    return this.#guard(() => {
      const owner = {
        ...{ spec, maxBatchTokens, rowParts, stream: device.stream },
        onClose: (closed: CudaKv) => this.forget(closed),
      };
      const state = new CudaKv(owner, capacityTokens);
      try {
        graphs.clear();
        scratch.reserveEntries(mostIndexerEntries(spec, capacityTokens));
      } catch (error) {
        closeQuietly(() => state.close());
        throw error;
      }
      return state;
    });
  }

  protected compute(parts: CudaParts, batch: TokenBatch<CudaKv>, options: ForwardOptions): ForwardResult {
    const { device, steps, work, scratch, model, graphs, chain, host } = parts;
    const { spec } = this;
    const tokens = batch.tokens.length;
    const pass = {
      ...{ ctx: device, steps, work, spec, scratch, buffers: scratch.buffers, batch, tokens, options },
      ...{ graphs, chain },
    };
    const { logits, top } = this.#guard(() => forwardBatch(pass, model, host));
    return { logits, top: top.map((each) => each && { ...each, row: () => this.#guard(each.row) }) };
  }

  deviceCopyRate(): number {
    const { device, scratch } = this.open();
    // The largest buffers that nothing needs between two calls.
    const { q, mixed } = scratch.buffers;
    return this.#guard(() => deviceCopyRate(device, q, mixed));
  }

  protected heldBytes({ weights, scratch, workMemory, host, weightBytesPerToken }: CudaParts): HeldBytes {
    const scratchBytes = scratch.bytes + workMemory.bytes + host.pinned.bytes + host.values.byteLength;
    return { weightBytes: weights.bytes, scratchBytes, weightBytesPerToken };
  }

  protected release(parts: CudaParts, states: readonly CudaKv[]): void {
    const { device, weights, scratch, workMemory, host, graphs } = parts;
    closeQuietly(() => graphs.clear());
    // After a lost device giving back fails too, and the driver has taken everything already.
    for (const part of [...states, workMemory, host.pinned, scratch, weights, device])
      closeQuietly(() => part.close());
  }

  /** Recorded steps hold the addresses of the states that they work on. */
  protected override forget(closed: CudaKv): void {
    super.forget(closed);
    this.#graphs.clear();
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
