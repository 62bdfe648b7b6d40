// The reference backend: the readable oracle that the fast ones are compared with. Plain TypeScript, weights
// decoded to float32, one file per block of the model.
import type { GgufFile } from "../../gguf/gguf-file.ts";
import { type BoundModel, bindModel } from "../../model/weights.ts";
import type { Backend, ForwardOptions, ForwardResult } from "../backend.ts";
import { allocateArrays, BackendBase, type HeldBytes } from "../backend-base.ts";
import { type Batch, forwardBatch } from "./forward.ts";
import { ReferenceKv } from "./kv-state.ts";
import { createRounding, type QatRounding, type Rounding } from "./rounding.ts";
import { type Decoded, decodedBytes, decodeModel } from "./weight-decoding.ts";

/** Tokens per call by default: activations of a batch are all held at once. */
const DEFAULT_BATCH_TOKENS = 2048;

/** Options of `createReferenceBackend`. */
export interface ReferenceOptions {
  /** Most tokens of one forward call (2048). */
  maxBatchTokens?: number;
  /** Rounding of the original model's quantization-aware training ("off"). */
  qatRounding?: QatRounding;
}

/**
 * Loads a model for the reference backend. The file may be closed afterwards. Throws `unsupported-model` when it
 * cannot be bound, `memory` when its float32 weights exceed `MAX_DECODED_BYTES`.
 */
export function createReferenceBackend(file: GgufFile, options: ReferenceOptions = {}): Backend {
  const bound = bindModel(file);
  const rounding = createRounding(options.qatRounding ?? "off", bound.spec);
  return new ReferenceBackend(decodeModel(file, bound), decodedBytes(bound), rounding, options);
}

class ReferenceBackend extends BackendBase<ReferenceKv, Decoded<BoundModel>> {
  readonly name = "reference";
  readonly description = "plain TypeScript, float32 weights, one thread";
  readonly #rounding: Rounding;
  readonly #weightBytes: number;

  constructor(
    model: Decoded<BoundModel>,
    weightBytes: number,
    rounding: Rounding,
    options: ReferenceOptions,
  ) {
    super(model, model.spec, options.maxBatchTokens ?? DEFAULT_BATCH_TOKENS);
    this.#weightBytes = weightBytes;
    this.#rounding = rounding;
  }

  protected allocateKv(_model: Decoded<BoundModel>, capacityTokens: number): ReferenceKv {
    return allocateArrays(
      `a KV state of ${capacityTokens} tokens`,
      () => new ReferenceKv(this.spec, capacityTokens, (closed) => this.forget(closed)),
    );
  }

  protected compute(model: Decoded<BoundModel>, batch: Batch, options: ForwardOptions): ForwardResult {
    return forwardBatch(model, batch, this.#rounding, options);
  }

  protected heldBytes(): HeldBytes {
    // Activations are fresh arrays, left to the garbage collector.
    return { weightBytes: this.#weightBytes, scratchBytes: 0, weightBytesPerToken: 0 };
  }

  protected release(_model: Decoded<BoundModel>, states: readonly ReferenceKv[]): void {
    for (const state of states) state.close();
  }
}
