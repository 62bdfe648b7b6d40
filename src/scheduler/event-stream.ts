// One request's events on the main thread: a buffer whose reader gives the worker credit through shared memory.
import type { ProgressListener } from "../core/progress.ts";
import { RequestControl } from "./scheduler-protocol.ts";
import type { ScheduledEvent } from "./scheduler-types.ts";

/** What a stream works with. */
export interface EventStreamOptions {
  /** Events that the worker may be ahead of the reader. */
  window: number;
  /** Events may wait this long for a reader before the request is cancelled: it holds a slot. */
  readerTimeoutMs: number;
  signal?: AbortSignal;
  onProgress?: ProgressListener;
  /** Asks the worker to look at the shared words again. */
  wakeWorker(): void;
}

/** See the file's head. Holds at most `window` events and the last one. */
export class EventStream {
  readonly control = new RequestControl();
  readonly #options: EventStreamOptions;
  readonly #started = performance.now();
  #queue: ScheduledEvent[] = [];
  #done = false;
  #failure: Error | undefined;
  #wakeReader = () => {};
  /** The last read, or when an event came to a reader that was not behind. */
  #waitingSince = performance.now();
  #timer: NodeJS.Timeout | undefined;
  readonly #abort = () => this.cancel();

  constructor(options: EventStreamOptions) {
    this.#options = options;
    const { signal } = options;
    if (signal?.aborted) this.control.cancel();
    else signal?.addEventListener("abort", this.#abort, { once: true });
  }

  get cancelled(): boolean {
    return this.control.cancelled;
  }

  get ageMs(): number {
    return performance.now() - this.#started;
  }

  /** Asks the worker to stop. Harmless when it ended. */
  cancel(): void {
    if (this.#done || this.cancelled) return;
    this.control.cancel();
    this.#options.wakeWorker();
  }

  push(event: ScheduledEvent): void {
    if (this.#queue.length === 0) this.#waitingSince = performance.now();
    this.#queue.push(event);
    if (event.kind === "finish") this.#end();
    else this.#timer ??= this.#watch(this.#options.readerTimeoutMs);
    this.#wakeReader();
  }

  progress(progress: Parameters<ProgressListener>[0]): void {
    this.#options.onProgress?.(progress);
  }

  fail(error: Error): void {
    this.#failure = error;
    this.#end();
    this.#wakeReader();
  }

  /** The reader's side; to be read once. Its `return()` cancels, even before the first read. */
  events(): AsyncGenerator<ScheduledEvent, void> {
    const events = this.#read();
    const end = events.return.bind(events);
    events.return = (value) => {
      this.cancel();
      return end(value);
    };
    return events;
  }

  async *#read(): AsyncGenerator<ScheduledEvent, void> {
    try {
      for (;;) {
        const event = this.#queue.shift();
        if (event !== undefined) {
          this.#waitingSince = performance.now();
          this.#giveCredit();
          yield event;
        } else if (this.#failure !== undefined) throw this.#failure;
        else if (this.#done) return;
        else {
          await new Promise<void>((resolve) => {
            this.#wakeReader = resolve;
          });
        }
      }
    } finally {
      this.cancel();
    }
  }

  // The worker reads the count at every step; it has to be woken only if it may be waiting for this reader.
  #giveCredit(): void {
    const consumed = this.control.consume();
    const half = Math.max(1, this.#options.window >> 1);
    if (!this.#done && consumed % half === 0) this.#options.wakeWorker();
  }

  #watch(delayMs: number): NodeJS.Timeout {
    const look = () => {
      this.#timer = undefined;
      if (this.#queue.length === 0) return; // the next event starts it again
      const leftMs = this.#waitingSince + this.#options.readerTimeoutMs - performance.now();
      if (leftMs <= 0) this.cancel();
      else this.#timer = this.#watch(leftMs);
    };
    return setTimeout(look, delayMs).unref();
  }

  #end(): void {
    this.#done = true;
    clearTimeout(this.#timer);
    this.#options.signal?.removeEventListener("abort", this.#abort);
  }
}
