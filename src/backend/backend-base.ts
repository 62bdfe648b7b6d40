// What all backends do alike: own the KV states, check calls before they compute, count, open and close.
import { Ds4Error, MemoryError, UsageError } from "../core/errors.ts";
import type { ModelSpec } from "../model/model-spec.ts";
import type { Backend, BackendStats, ForwardOptions, ForwardResult, KvState, TokenRange } from "./backend.ts";
import { checkKvCapacity, layOutRanges, type TokenBatch } from "./token-batch.ts";
import { whileCurrent } from "./top-logits.ts";

/** Most tokens of one forward call that a backend can be opened for. */
export const MAX_BATCH_TOKENS = 8192;

/** The bytes that only the backend itself knows of. */
export type HeldBytes = Pick<BackendStats, "weightBytes" | "scratchBytes" | "weightBytesPerToken">;

/** A backend whose states are `Kv` and that holds `Parts` until it is closed. */
export abstract class BackendBase<Kv extends KvState, Parts> implements Backend {
  abstract readonly name: string;
  abstract readonly description: string;
  readonly spec: ModelSpec;
  readonly maxBatchTokens: number;
  readonly #states = new Set<Kv>();
  readonly #owns = (kv: KvState): kv is Kv => this.#states.has(kv as Kv);
  #parts: Parts | null;
  #startedCalls = 0;
  #forwardCalls = 0;
  #tokens = 0;

  constructor(parts: Parts, spec: ModelSpec, maxBatchTokens: number) {
    this.#parts = parts;
    this.spec = spec;
    this.maxBatchTokens = maxBatchTokens;
  }

  createKv(capacityTokens: number): KvState {
    const parts = this.open();
    checkKvCapacity(this.spec, capacityTokens);
    const state = this.allocateKv(parts, capacityTokens);
    this.#states.add(state);
    return state;
  }

  forward(ranges: readonly TokenRange[], options: ForwardOptions = {}): ForwardResult {
    const parts = this.open();
    const { spec, maxBatchTokens } = this;
    const batch = layOutRanges(ranges, { spec, maxBatchTokens, owns: this.#owns });
    const tokens = batch.tokens.length;
    if (tokens === 0) return { logits: [], top: [] };
    const call = ++this.#startedCalls;
    const { logits, top } = this.compute(parts, batch, options);
    this.#forwardCalls++;
    this.#tokens += tokens;
    const isCurrent = () => call === this.#startedCalls && this.#parts !== null;
    return { logits, top: top.map((each) => each && whileCurrent(each, isCurrent)) };
  }

  stats(): BackendStats {
    const nothing: HeldBytes = { weightBytes: 0, scratchBytes: 0, weightBytesPerToken: 0 };
    return {
      forwardCalls: this.#forwardCalls,
      tokens: this.#tokens,
      kvBytes: [...this.#states].reduce((total, state) => total + state.bytes, 0),
      ...(this.#parts === null ? nothing : this.heldBytes(this.#parts)),
    };
  }

  close(): void {
    const parts = this.#parts;
    if (parts === null) return;
    this.#parts = null;
    this.release(parts, [...this.#states]);
  }

  /** Everything the backend holds. Throws `session` when it is closed. */
  protected open(): Parts {
    if (this.#parts === null) throw new Ds4Error("session", "the backend is closed");
    return this.#parts;
  }

  /** To be called by a state that was closed. */
  protected forget(state: Kv): void {
    this.#states.delete(state);
  }

  /** A new state. Throws `memory`. */
  protected abstract allocateKv(parts: Parts, capacityTokens: number): Kv;

  /** Evaluates a batch of at least one token and appends it to its states; as in `forward`. */
  protected abstract compute(parts: Parts, batch: TokenBatch<Kv>, options: ForwardOptions): ForwardResult;

  protected abstract heldBytes(parts: Parts): HeldBytes;

  /** Closes the states that are open, and everything else. */
  protected abstract release(parts: Parts, states: readonly Kv[]): void;
}

/** An option that counts something. Throws `usage` unless 1 <= value <= max. */
export function wholeOption(name: string, value: number, max: number): number {
  if (Number.isInteger(value) && value >= 1 && value <= max) return value;
  throw new UsageError(`${name}: expected a whole number from 1 to ${max}, found ${value}`);
}

/** Runs what allocates typed arrays, `what` in words. Throws `memory` when there is no room for them. */
export function allocateArrays<Result>(what: string, allocate: () => Result): Result {
  try {
    return allocate();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new MemoryError(`no memory for ${what}`, Number.NaN, Number.NaN);
  }
}
