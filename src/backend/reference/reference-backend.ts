// The reference backend: the readable oracle that the fast ones are compared with. Plain TypeScript, weights
// decoded to float32, one file per block of the model.
import { Ds4Error, MemoryError } from "../../core/errors.ts";
import type { GgufFile } from "../../gguf/gguf-file.ts";
import type { ModelSpec } from "../../model/model-spec.ts";
import { type BoundModel, bindModel } from "../../model/weights.ts";
import type {
  Backend,
  BackendStats,
  ForwardOptions,
  ForwardResult,
  KvState,
  TokenRange,
} from "../backend.ts";
import { checkKvCapacity, layOutRanges } from "../token-batch.ts";
import { forwardBatch } from "./forward.ts";
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

class ReferenceBackend implements Backend {
  readonly name = "reference";
  readonly description = "plain TypeScript, float32 weights, one thread";
  readonly spec: ModelSpec;
  readonly maxBatchTokens: number;
  readonly #rounding: Rounding;
  readonly #weightBytes: number;
  readonly #states = new Set<ReferenceKv>();
  #model: Decoded<BoundModel> | null;
  #forwardCalls = 0;
  #tokens = 0;

  constructor(
    model: Decoded<BoundModel>,
    weightBytes: number,
    rounding: Rounding,
    options: ReferenceOptions,
  ) {
    this.#model = model;
    this.#weightBytes = weightBytes;
    this.#rounding = rounding;
    this.spec = model.spec;
    this.maxBatchTokens = options.maxBatchTokens ?? DEFAULT_BATCH_TOKENS;
  }

  createKv(capacityTokens: number): KvState {
    this.#openModel();
    checkKvCapacity(this.spec, capacityTokens);
    try {
      const state = new ReferenceKv(this.spec, capacityTokens, (closed) => this.#states.delete(closed));
      this.#states.add(state);
      return state;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new MemoryError(`no memory for a KV state of ${capacityTokens} tokens`, Number.NaN, Number.NaN);
    }
  }

  forward(ranges: readonly TokenRange[], options: ForwardOptions = {}): ForwardResult {
    const model = this.#openModel();
    const batch = layOutRanges(ranges, {
      spec: this.spec,
      maxBatchTokens: this.maxBatchTokens,
      owns: (kv): kv is ReferenceKv => kv instanceof ReferenceKv && this.#states.has(kv),
    });
    const logits = forwardBatch(model, batch, this.#rounding, options);
    this.#forwardCalls++;
    this.#tokens += batch.tokens.length;
    return { logits };
  }

  stats(): BackendStats {
    const kvBytes = [...this.#states].reduce((total, state) => total + state.bytes, 0);
    return {
      forwardCalls: this.#forwardCalls,
      tokens: this.#tokens,
      weightBytes: this.#model === null ? 0 : this.#weightBytes,
      kvBytes,
      scratchBytes: 0, // activations are fresh arrays, left to the garbage collector
      weightBytesPerToken: 0,
    };
  }

  close(): void {
    this.#model = null;
    for (const state of [...this.#states]) state.close();
  }

  #openModel(): Decoded<BoundModel> {
    if (this.#model === null) throw new Ds4Error("session", "the backend is closed");
    return this.#model;
  }
}
