// The main thread's side of the engine. All model work runs in a worker thread, so that the event loop never waits
// for a forward pass; cancellation reaches the busy worker through shared memory.
import type { ResourceLimits } from "node:worker_threads";
import { CancelledError, Ds4Error } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import {
  type EngineCall,
  type EngineInfo,
  type EngineResults,
  type EngineStats,
  type EngineWorkerOptions,
  type FromWorker,
  fromWireError,
  type PrefillResult,
  type ToWorker,
} from "./engine-protocol.ts";
import type { EvaluateRequest, EvaluateResult } from "./evaluate.ts";
import type { GenerateEvent, GenerateRequest } from "./generate.ts";
import { cancelFlag, WorkerThread } from "./worker-thread.ts";

/** A worker that does not end this long after `close` is ended by force. */
const CLOSE_TIMEOUT_MS = 10_000;

/** How to open an engine. */
export interface SessionEngineOptions extends Partial<Omit<EngineWorkerOptions, "cancel">> {
  modelPath: string;
  /** Aborting it stops loading; afterwards it means nothing. */
  signal?: AbortSignal;
  /** Progress of loading. */
  onProgress?: ProgressListener;
  /** Another worker program, which must call `serveEngine`. */
  workerUrl?: URL;
  /** Limits of the worker's JavaScript heap (weights are not in it). */
  resourceLimits?: ResourceLimits;
}

/** Options of one call. */
export interface CallOptions {
  signal?: AbortSignal;
  onProgress?: ProgressListener;
}

interface PendingCall {
  cancel(): void;
  onProgress: ProgressListener | undefined;
  onEvent: ((event: GenerateEvent) => void) | undefined;
  resolve(result: unknown): void;
  reject(error: Error): void;
}

/** A model loaded in a worker, with one session. Calls are run one after another in the order they were made. */
export class SessionEngine {
  readonly #thread: WorkerThread<ToWorker, FromWorker>;
  readonly #pending = new Map<number, PendingCall>();
  readonly #loaded: Promise<EngineInfo>;
  #info: EngineInfo | undefined;
  #nextId = 1;
  #ended: Error | undefined;

  /**
   * Starts the worker and loads the model. Throws what loading throws (`gguf`, `unsupported-model`, `memory`,
   * `cancelled`, …) or `EngineCrashedError`.
   */
  static async open(options: SessionEngineOptions): Promise<SessionEngine> {
    const { modelPath, backend = "auto", threads, ctxTokens, headRows, force } = options;
    const flag = cancelFlag(options.signal);
    const demand = { modelPath, backend, threads, ctxTokens, headRows, force };
    const engine = new SessionEngine({ ...demand, cancel: flag.buffer }, options);
    engine.#info = await engine.#loaded.finally(flag.release);
    return engine;
  }

  private constructor(workerData: EngineWorkerOptions, options: SessionEngineOptions) {
    const { workerUrl: url, resourceLimits, onProgress } = options;
    // Loading is call 0: it is answered by `ready` or `failed`, and a crash rejects it like any other call.
    this.#loaded = new Promise((resolve, reject) => {
      const onResult = resolve as (result: unknown) => void;
      this.#pending.set(0, { cancel() {}, onProgress, onEvent: undefined, resolve: onResult, reject });
    });
    this.#thread = new WorkerThread({
      ...{ program: "engine-worker", url, workerData, resourceLimits },
      onMessage: (message) => this.#receive(message),
      onEnd: (error) => this.#end(error),
    });
  }

  /** What is known of the model and the backend. */
  get info(): EngineInfo {
    return this.#info!;
  }

  /**
   * Streams an answer. Aborting the signal or leaving the loop stops the work at the next token or chunk; the
   * stream then ends with a `finish` event of reason `cancelled`. Throws what the session throws, or
   * `EngineCrashedError`.
   */
  async *generate(request: GenerateRequest, options: CallOptions = {}): AsyncGenerator<GenerateEvent, void> {
    const queue: GenerateEvent[] = [];
    let wake = () => {};
    let done = false;
    let failure: Error | undefined;
    const pending = this.#call({ kind: "generate", request }, options, (event) => {
      queue.push(event);
      wake();
    });
    pending.finished
      .catch((error: Error) => {
        failure = error;
      })
      .finally(() => {
        done = true;
        wake();
      });
    try {
      while (!done || queue.length > 0) {
        const event = queue.shift();
        if (event !== undefined) yield event;
        else {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
      }
      if (failure !== undefined) throw failure;
    } finally {
      pending.cancel();
    }
  }

  /** Evaluates a prompt and returns the logits after it. Throws `cancelled` when aborted. */
  prefill(tokens: Int32Array, options: CallOptions & { chunkTokens?: number } = {}): Promise<PrefillResult> {
    return this.#call({ kind: "prefill", tokens, chunkTokens: options.chunkTokens }, options).finished;
  }

  /** Scores a text; see `evaluate.ts`. Throws `cancelled` when aborted. */
  evaluate(request: EvaluateRequest, options: CallOptions = {}): Promise<EvaluateResult> {
    return this.#call({ kind: "evaluate", request }, options).finished;
  }

  /** Replaces the session by an empty one of another size, allocated at its first use. */
  async resize(ctxTokens: number): Promise<void> {
    await this.#call({ kind: "resize", ctxTokens }).finished;
  }

  /** Counters and memory. Answered between calls, so it waits for the running one. */
  stats(): Promise<EngineStats> {
    return this.#call({ kind: "stats" }).finished;
  }

  /** Cancels what runs, frees the model and ends the worker. Twice is harmless. */
  async close(): Promise<void> {
    if (this.#ended === undefined) {
      for (const pending of this.#pending.values()) pending.cancel();
      const closed = this.#call({ kind: "close" }).finished.catch(() => {});
      this.#ended = new Ds4Error("session", "the engine is closed");
      await closed;
    }
    await this.#thread.end(CLOSE_TIMEOUT_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #call<C extends EngineCall>(call: C, options: CallOptions = {}, onEvent?: (event: GenerateEvent) => void) {
    const { signal, onProgress } = options;
    const { buffer, raise: cancel, release } = cancelFlag(signal);
    const finished = new Promise<EngineResults[C["kind"]]>((resolve, reject) => {
      if (this.#ended !== undefined) throw this.#ended;
      // A stream reports being cancelled itself; other calls need not even be sent.
      if (signal?.aborted && call.kind !== "generate") throw new CancelledError();
      const id = this.#nextId++;
      const onResult = resolve as (result: unknown) => void;
      this.#pending.set(id, { cancel, onProgress, onEvent, resolve: onResult, reject });
      this.#thread.post({ id, call, cancel: buffer });
    }).finally(release);
    return { finished, cancel };
  }

  #receive(message: FromWorker): void {
    const id = message.kind === "ready" || message.kind === "failed" ? 0 : message.id;
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    if (message.kind === "progress") {
      pending.onProgress?.(message.progress);
      return;
    }
    if (message.kind === "event") {
      pending.onEvent?.(message.event);
      return;
    }
    this.#pending.delete(id);
    if (message.kind === "ready") pending.resolve(message.info);
    else if (message.kind === "result") pending.resolve(message.result);
    else pending.reject(fromWireError(message.error));
  }

  #end(error: Error): void {
    this.#ended ??= error;
    for (const pending of this.#pending.values()) pending.reject(error);
    this.#pending.clear();
  }
}
