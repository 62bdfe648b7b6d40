// The worker's side: opens the parts, takes messages between two steps, and steps while there is work.
import type { MessagePort } from "node:worker_threads";
import type { Progress } from "../core/progress.ts";
import { DEFAULT_CTX_TOKENS, type EngineParts } from "../session/engine-loop.ts";
import type { KvDisk } from "./kv-disk-types.ts";
import { Scheduler, type SchedulerSink } from "./scheduler.ts";
import {
  type FromScheduler,
  RequestControl,
  type StreamEvents,
  type ToScheduler,
  toSchedulerWire,
} from "./scheduler-protocol.ts";
import type { SchedulerInfo, SchedulerWorkerOptions } from "./scheduler-types.ts";

/** Progress is drawn by people's terminals: more often is waste. */
const PROGRESS_INTERVAL_MS = 50;

/** What the loop runs on; the backend and the disk are closed by the loop. */
export interface SchedulerEngineParts extends EngineParts {
  disk?: KvDisk;
}

/** Opens the parts. May take minutes. `log` takes lines at any later time. */
export type OpenSchedulerParts = (
  options: SchedulerWorkerOptions,
  onProgress: (progress: Progress) => void,
  log: (line: string) => void,
) => SchedulerEngineParts | Promise<SchedulerEngineParts>;

/** Opens the parts and serves until `close`. An error while opening is sent as `failed` and ends the loop. */
export async function serveScheduler(
  port: MessagePort,
  options: SchedulerWorkerOptions,
  open: OpenSchedulerParts,
) {
  const send = (message: FromScheduler) => port.postMessage(message);
  const started = performance.now();
  let parts: SchedulerEngineParts | undefined;
  try {
    const onProgress = throttled((progress) => send({ kind: "loading", progress }));
    parts = await open(options, onProgress, (line) => send({ kind: "log", line }));
    const { backend, warnings } = parts;
    const ctxTokens = Math.min(options.ctxTokens ?? DEFAULT_CTX_TOKENS, backend.spec.contextTokens);
    const loop = new SchedulerLoop(port, parts, { ...options, ctxTokens });
    const info: SchedulerInfo = {
      backendName: backend.name,
      backendDescription: backend.description,
      spec: backend.spec,
      warnings,
      loadSeconds: (performance.now() - started) / 1000,
      weightBytes: backend.stats().weightBytes,
      slots: options.slots,
      queueLimit: options.queueLimit,
      ctxTokens,
    };
    send({ kind: "ready", info });
    await loop.run();
    parts.backend.close();
    send({ kind: "closed" });
  } catch (error) {
    await parts?.disk?.close();
    parts?.backend.close();
    send({ kind: "failed", error: toSchedulerWire(error) });
  }
  port.close();
}

class SchedulerLoop {
  readonly #port: MessagePort;
  readonly #scheduler: Scheduler;
  #closing = false;
  #wake = () => {};
  /** Events of the step that runs. */
  #outbox: StreamEvents[] = [];
  /** Something happened since the last step began. */
  #pending = false;

  constructor(
    port: MessagePort,
    parts: SchedulerEngineParts,
    options: SchedulerWorkerOptions & { ctxTokens: number },
  ) {
    this.#port = port;
    this.#scheduler = new Scheduler({ ...parts, sink: this.#sink() }, options);
    port.on("message", (message: ToScheduler) => this.#receive(message));
  }

  /** Steps until `close`, letting messages in between two steps. */
  async run(): Promise<void> {
    while (!this.#closing) {
      this.#pending = false;
      const worked = this.#scheduler.step();
      if (worked || this.#pending) await new Promise<void>((resolve) => void setImmediate(resolve));
      else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
    await this.#scheduler.close();
  }

  #receive(message: ToScheduler): void {
    if (message.kind === "generate") {
      this.#scheduler.submit(message.id, message.request, new RequestControl(message.control));
    } else if (message.kind === "stats") {
      this.#send({ kind: "stats", id: message.id, stats: this.#scheduler.stats() });
    } else if (message.kind === "close") this.#closing = true;
    this.#notify();
  }

  #notify(): void {
    this.#pending = true;
    this.#wake();
  }

  #send(message: FromScheduler): void {
    this.#flush();
    this.#port.postMessage(message);
  }

  #flush(): void {
    if (this.#outbox.length === 0) return;
    const streams = this.#outbox;
    this.#outbox = [];
    this.#port.postMessage({ kind: "events", streams } satisfies FromScheduler);
  }

  #sink(): SchedulerSink {
    const progressOf = new Map<number, (progress: Progress) => void>();
    return {
      events: (id, events) => {
        if (events.at(-1)?.kind === "finish") progressOf.delete(id);
        // Steps are synchronous, so all that one makes is there when the microtask runs.
        if (this.#outbox.length === 0) queueMicrotask(() => this.#flush());
        this.#outbox.push({ id, events });
      },
      error: (id, error) => {
        progressOf.delete(id);
        this.#send({ kind: "error", id, error: toSchedulerWire(error) });
      },
      progress: (id, progress) => {
        let report = progressOf.get(id);
        if (report === undefined) {
          report = throttled((due) => this.#send({ kind: "progress", id, progress: due }));
          progressOf.set(id, report);
        }
        report(progress);
      },
      failed: (reason) => this.#send({ kind: "health", reason }),
      log: (line) => this.#send({ kind: "log", line }),
      wake: () => this.#notify(),
    };
  }
}

/** Forwards the first report, the last, and at most one per interval between. */
function throttled(send: (progress: Progress) => void): (progress: Progress) => void {
  let last = Number.NEGATIVE_INFINITY;
  return (progress) => {
    const now = performance.now();
    if (now - last < PROGRESS_INTERVAL_MS && progress.done < progress.total) return;
    last = now;
    send(progress);
  };
}
