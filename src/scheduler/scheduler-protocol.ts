// The messages between the main thread and the scheduler's worker, and the memory they share per request.
import type { Progress } from "../core/progress.ts";
import { fromWireError, toWireError, type WireError } from "../session/engine-protocol.ts";
import { BackendFaultError, QueueFullError } from "./scheduler-errors.ts";
import type { ScheduledEvent, ScheduledRequest, SchedulerInfo, SchedulerStats } from "./scheduler-types.ts";

/** Main to worker. `wake` says that a shared word changed: a cancel, or room for a paused reader. */
export type ToScheduler =
  | { kind: "generate"; id: number; request: ScheduledRequest; control: SharedArrayBuffer }
  | { kind: "stats"; id: number }
  | { kind: "wake" }
  | { kind: "close" };

/** Worker to main. `closed` is the last message; `log` are lines for whoever keeps a log. */
export type FromScheduler =
  | { kind: "ready"; info: SchedulerInfo }
  | { kind: "failed"; error: WireError }
  | { kind: "loading"; progress: Progress }
  | { kind: "progress"; id: number; progress: Progress }
  | { kind: "events"; streams: StreamEvents[] }
  | { kind: "error"; id: number; error: WireError }
  | { kind: "stats"; id: number; stats: SchedulerStats }
  | { kind: "health"; reason: string }
  | { kind: "log"; line: string }
  | { kind: "closed" };

/** Events of one request. A message holds what all requests got in one step: messages cost more than their contents. */
export interface StreamEvents {
  id: number;
  events: ScheduledEvent[];
}

const CANCEL = 0;
const CONSUMED = 1;

/** Two shared words of a request: the main thread writes them, the worker looks at them at every step. */
export class RequestControl {
  readonly buffer: SharedArrayBuffer;
  readonly #words: Int32Array;

  constructor(buffer = new SharedArrayBuffer(8)) {
    this.buffer = buffer;
    this.#words = new Int32Array(buffer);
  }

  get cancelled(): boolean {
    return Atomics.load(this.#words, CANCEL) !== 0;
  }

  cancel(): void {
    Atomics.store(this.#words, CANCEL, 1);
  }

  /** Events that the reader took, modulo 2^32. */
  get consumedEvents(): number {
    return Atomics.load(this.#words, CONSUMED) >>> 0;
  }

  /** Counts one event as taken and returns the new count. */
  consume(): number {
    return (Atomics.add(this.#words, CONSUMED, 1) + 1) >>> 0;
  }
}

/** As `toWireError`, with the fields of this folder's errors. */
export function toSchedulerWire(error: unknown): WireError {
  const wire = toWireError(error);
  if (error instanceof QueueFullError) {
    wire.fields = { queueLimit: error.queueLimit, retryAfterMs: error.retryAfterMs };
  }
  return wire;
}

/** The error again, of its own class. */
export function fromSchedulerWire(wire: WireError): Error {
  if (wire.code === "queue-full") {
    return new QueueFullError(Number(wire.fields.queueLimit), Number(wire.fields.retryAfterMs));
  }
  if (wire.code === "backend-fault") {
    return new BackendFaultError(wire.message.replace(/^the backend failed: /, ""), { cause: wire.stack });
  }
  return fromWireError(wire);
}
