// The narrow waist: what every backend (reference, cpu, cuda) does, and nothing else. Sessions and the
// scheduler see this file only. All calls are synchronous; the engine runs them in a worker thread.
import type { ModelSpec } from "../model/model-spec.ts";
import type { KvSnapshot } from "./kv-snapshot.ts";

/** Which rows of logits a range returns; "top": what sampling needs of the last one, as `TopLogits`. */
export type LogitsWanted = "none" | "last" | "all" | "top";

/** Candidates of a row of logits, unless the vocabulary is smaller. */
export const TOP_LOGITS = 256;

/** A row of logits as sampling needs it: its largest ones, their share of all, and the rest on demand. */
export interface TopLogits {
  /** Ids of the largest logits: descending, equal ones by id, NaN before everything. */
  readonly ids: Int32Array;
  /** Their logits. */
  readonly logits: Float32Array;
  /**
   * ln of the sum of exp over the whole row, at most 1e-6 off; NaN where the row holds NaN or +Infinity. Throws `session`
   * once another forward call was made.
   */
  logSumExp(): number;
  /** The whole row [vocabSize], a view until the next forward call. Throws `session` from then on. */
  row(): Float32Array;
}

/** Consecutive tokens of one sequence, appended at `kv.lengthTokens`. */
export interface TokenRange {
  kv: KvState;
  /** Token ids, each in 0..vocabSize-1; at least one. */
  tokens: Int32Array;
  logits: LogitsWanted;
}

/**
 * Receives intermediate results of a forward pass, for comparison against another implementation.
 * `name` is one of attn_out [tokens, hidden], moe_out [tokens, hidden], streams [tokens, hyper, hidden],
 * expert_ids / expert_weights [tokens, used], indexer_topk [tokens, topK] (-1 = none). `data` is valid only
 * during the call.
 */
export type TraceSink = (name: string, layer: number, data: Float32Array | Int32Array) => void;

/** Options of one forward call. */
export interface ForwardOptions {
  trace?: TraceSink;
  /**
   * Called with the input activations of a routed-expert matrix or dense matrix, for importance matrices:
   * tensor name, expert index (-1 for dense), row-major [rows, columns] inputs.
   */
  observeInputs?: (tensorName: string, expert: number, inputs: Float32Array, rows: number) => void;
}

/** Result of one forward call. */
export interface ForwardResult {
  /** Per range: row-major [rows, vocabSize] with rows 0, 1 or tokens. Valid until the next forward call. */
  logits: Float32Array[];
  /** Per range: the candidates, where they were wanted. */
  top: (TopLogits | undefined)[];
}

/** The attention state of one sequence. Memory is allocated once, for `capacityTokens`. */
export interface KvState {
  readonly capacityTokens: number;
  /** Tokens evaluated so far. */
  readonly lengthTokens: number;
  /** Bytes held, constant from creation on. */
  readonly bytes: number;
  /** Copies the state out in the backend-independent form. */
  snapshot(): KvSnapshot;
  /** Replaces the state. Throws `session` when the snapshot is of another model shape or too long. */
  restore(snapshot: KvSnapshot): void;
  /** Forgets everything; memory stays. */
  reset(): void;
  close(): void;
}

/** Counters since the backend was opened. */
export interface BackendStats {
  forwardCalls: number;
  tokens: number;
  /** Bytes of weights, KV states and scratch held now. */
  weightBytes: number;
  kvBytes: number;
  scratchBytes: number;
  /** Bytes of weights read per single-token step (for bandwidth figures); 0 when unknown. */
  weightBytesPerToken: number;
}

/** A model ready to run. */
export interface Backend {
  /** "reference", "cpu" or "cuda". */
  readonly name: string;
  /** One line for people: device, instruction set, threads. */
  readonly description: string;
  readonly spec: ModelSpec;
  /** Most tokens one forward call takes, over all its ranges. */
  readonly maxBatchTokens: number;
  /** Throws `memory` when it does not fit. */
  createKv(capacityTokens: number): KvState;
  /**
   * Evaluates the ranges and appends them to their KV states. All ranges are checked first: token ids
   * (`session`), room (`context-full`), batch size (`session`); then nothing is changed on failure. Two
   * ranges must not share a KV state.
   */
  forward(ranges: readonly TokenRange[], options?: ForwardOptions): ForwardResult;
  stats(): BackendStats;
  /**
   * Bytes per second of the device's memory, measured now, read and written ones counted; 0 where what can be measured
   * would fit in its caches. Absent where weights are in the host's memory.
   */
  deviceCopyRate?(): number;
  close(): void;
}
