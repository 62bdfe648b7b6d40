// The main thread's side of the scheduler: many requests at once over one model in a worker thread. Refusals are
// decided here, at once, so that a server can answer with a status before it sends headers.
import { Ds4Error } from "../core/errors.ts";
import type { CallOptions, SessionEngineOptions } from "../session/session-engine.ts";
import { cancelFlag, WorkerThread } from "../session/worker-thread.ts";
import { checkRequest } from "./check-request.ts";
import { EventStream } from "./event-stream.ts";
import { BackendFaultError, QueueFullError } from "./scheduler-errors.ts";
import { type FromScheduler, fromSchedulerWire, type ToScheduler } from "./scheduler-protocol.ts";
import type {
  Health,
  ScheduledEvent,
  ScheduledRequest,
  SchedulerInfo,
  SchedulerLimits,
  SchedulerStats,
  SchedulerWorkerOptions,
} from "./scheduler-types.ts";

/** A worker that does not end this long after `close` is ended by force: saving a large state takes a while. */
const CLOSE_TIMEOUT_MS = 60_000;
const DEFAULT_EVENT_WINDOW = 256;
const DEFAULT_READER_TIMEOUT_MS = 600_000;
const RETRY_MIN_MS = 1000;
const RETRY_MAX_MS = 60_000;

/** How to open a scheduler. */
export interface SchedulerOptions extends SessionEngineOptions, SchedulerLimits {
  slots: number;
  /** A request whose events nobody takes for this long is cancelled, for it holds a slot. Default 600,000. */
  readerTimeoutMs?: number;
  /** Called with one line at a time: cache files refused, faults, warnings at run time. */
  onLog?: (line: string) => void;
}

interface Pending {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** A model loaded in a worker, serving several requests at once. */
export class SchedulerEngine {
  readonly #thread: WorkerThread<ToScheduler, FromScheduler>;
  readonly #streams = new Map<number, EventStream>();
  readonly #calls = new Map<number, Pending>();
  readonly #options: SchedulerOptions;
  readonly #loaded: Promise<SchedulerInfo>;
  #info: SchedulerInfo | undefined;
  #health: Health = { state: "ready", reason: undefined };
  #ended: Error | undefined;
  #onClosed = () => {};
  #nextId = 1;
  #meanRequestMs = RETRY_MIN_MS;

  /** Starts the worker and loads the model. Throws what loading throws, or `EngineCrashedError`. */
  static async open(options: SchedulerOptions): Promise<SchedulerEngine> {
    checkLimits(options);
    const { onProgress, workerUrl, resourceLimits, onLog, readerTimeoutMs, signal, ...rest } = options;
    const flag = cancelFlag(signal);
    const backend = rest.backend ?? "auto";
    const engine = new SchedulerEngine({ ...rest, backend, cancel: flag.buffer }, options);
    engine.#info = await engine.#loaded.finally(flag.release);
    return engine;
  }

  private constructor(workerData: SchedulerWorkerOptions, options: SchedulerOptions) {
    const { workerUrl: url, resourceLimits } = options;
    this.#options = options;
    this.#loaded = new Promise((resolve, reject) => {
      this.#calls.set(0, { resolve: resolve as (value: unknown) => void, reject });
    });
    this.#thread = new WorkerThread({
      ...{ program: "scheduler-worker", url, workerData, resourceLimits },
      onMessage: (message) => this.#receive(message),
      onEnd: (error) => this.#end(error),
    });
  }

  /** What is known of the model, the backend and the limits. */
  get info(): SchedulerInfo {
    return this.#info!;
  }

  /** Known at once, without asking the worker; a worker that ended is `failed`. */
  get health(): Health {
    if (this.#ended !== undefined) return { state: "failed", reason: this.#ended.message };
    return this.#health;
  }

  /** Requests that were accepted and have not ended. */
  get activeCount(): number {
    return [...this.#streams.values()].filter((stream) => !stream.cancelled).length;
  }

  /**
   * Starts an answer. Throws AT THE CALL, before anything runs: `queue-full` (with `retryAfterMs`), `context-full`,
   * `request` or `session` (wrong parameters or token ids), `backend-fault` once the health is `failed`.
   *
   * The stream begins to run at the call, not at the first read. Aborting the signal or leaving the loop stops the
   * work within a token or a chunk, in the queue too; the stream then ends with a `finish` event of reason
   * `cancelled`. It throws `backend-fault` or `EngineCrashedError`. A reader that falls `eventWindow` events behind
   * pauses its own request only, and one that takes nothing for `readerTimeoutMs` is cancelled. A stream that is never read must be ended with `return()` or the signal.
   */
  generate(request: ScheduledRequest, options: CallOptions = {}): AsyncGenerator<ScheduledEvent, void> {
    if (this.#ended !== undefined) throw this.#ended;
    if (this.#health.state === "failed") throw new BackendFaultError(this.#health.reason ?? "unknown");
    checkRequest(request, this.info);
    const { slots, queueLimit } = this.#options;
    if (this.activeCount >= slots + queueLimit) {
      const wait = this.#meanRequestMs / slots;
      throw new QueueFullError(queueLimit, Math.min(RETRY_MAX_MS, Math.max(RETRY_MIN_MS, wait)));
    }
    const id = this.#nextId++;
    const stream = new EventStream({
      window: this.#options.eventWindow ?? DEFAULT_EVENT_WINDOW,
      readerTimeoutMs: this.#options.readerTimeoutMs ?? DEFAULT_READER_TIMEOUT_MS,
      signal: options.signal,
      onProgress: options.onProgress,
      wakeWorker: () => this.#thread.post({ kind: "wake" }),
    });
    this.#streams.set(id, stream);
    this.#thread.post({ kind: "generate", id, request, control: stream.control.buffer });
    return stream.events();
  }

  /** Counters, slots, histograms and memory; answered between two steps. */
  stats(): Promise<SchedulerStats> {
    return new Promise((resolve, reject) => {
      if (this.#ended !== undefined) throw this.#ended;
      const id = this.#nextId++;
      this.#calls.set(id, { resolve: resolve as (value: unknown) => void, reject });
      this.#thread.post({ kind: "stats", id });
    });
  }

  /** Cancels what runs, saves the slots if there is a folder for it, frees the model. Twice is harmless. */
  async close(): Promise<void> {
    if (this.#ended === undefined) {
      for (const stream of this.#streams.values()) stream.cancel();
      const closed = new Promise<void>((resolve) => {
        this.#onClosed = resolve;
      });
      this.#thread.post({ kind: "close" });
      this.#ended = new Ds4Error("session", "the engine is closed");
      await Promise.race([closed, this.#thread.exited, after(CLOSE_TIMEOUT_MS)]);
    }
    await this.#thread.end(CLOSE_TIMEOUT_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #receive(message: FromScheduler): void {
    const { kind } = message;
    if (kind === "events") for (const { id, events } of message.streams) this.#receiveEvents(id, events);
    else if (kind === "progress") this.#streams.get(message.id)?.progress(message.progress);
    else if (kind === "error") {
      this.#streams.get(message.id)?.fail(fromSchedulerWire(message.error));
      this.#streams.delete(message.id);
    } else if (kind === "stats") this.#settle(message.id, (call) => call.resolve(message.stats));
    else if (kind === "health") this.#health = { state: "failed", reason: message.reason };
    else if (kind === "log") this.#options.onLog?.(message.line);
    else if (kind === "loading") this.#options.onProgress?.(message.progress);
    else if (kind === "ready") this.#settle(0, (call) => call.resolve(message.info));
    else if (kind === "failed") this.#settle(0, (call) => call.reject(fromSchedulerWire(message.error)));
    else this.#onClosed();
  }

  #receiveEvents(id: number, events: ScheduledEvent[]): void {
    const stream = this.#streams.get(id);
    if (stream === undefined) return;
    for (const event of events) stream.push(event);
    if (events.at(-1)?.kind !== "finish") return;
    this.#streams.delete(id);
    this.#meanRequestMs += (stream.ageMs - this.#meanRequestMs) / 8;
  }

  #settle(id: number, settle: (call: Pending) => void): void {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    if (call !== undefined) settle(call);
  }

  #end(error: Error): void {
    this.#ended ??= error;
    for (const stream of this.#streams.values()) stream.fail(error);
    for (const call of this.#calls.values()) call.reject(error);
    this.#streams.clear();
    this.#calls.clear();
    this.#onClosed();
  }
}

function checkLimits({ slots, queueLimit, chunkTokens }: SchedulerLimits): void {
  const check = (name: string, value: number, least: number) => {
    if (Number.isInteger(value) && value >= least) return;
    throw new Ds4Error("usage", `${name}: expected an integer of at least ${least}, got ${value}`);
  };
  check("slots", slots, 1);
  check("queueLimit", queueLimit, 0);
  check("chunkTokens", chunkTokens, 1);
}

function after(delayMs: number): Promise<void> {
  return new Promise((resolve) => void setTimeout(resolve, delayMs).unref());
}
