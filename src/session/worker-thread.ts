// The thread that an engine runs its model in: started, watched and ended here. What it is told and what it answers is
// each engine's own protocol.
import { type ResourceLimits, Worker } from "node:worker_threads";
import { EngineCrashedError } from "./session-errors.ts";

/** A flag in shared memory: it reaches a worker that is busy computing. */
export interface CancelFlag {
  readonly buffer: SharedArrayBuffer;
  raise(): void;
  /** Stops listening to the signal. */
  release(): void;
}

/** A flag that is raised when `signal` is aborted, or at once where it is already. */
export function cancelFlag(signal?: AbortSignal): CancelFlag {
  const buffer = new SharedArrayBuffer(4);
  const raise = () => void Atomics.store(new Int32Array(buffer), 0, 1);
  if (signal?.aborted) raise();
  signal?.addEventListener("abort", raise, { once: true });
  return { buffer, raise, release: () => signal?.removeEventListener("abort", raise) };
}

/** How to start a thread. */
export interface WorkerThreadOptions<FromThread> {
  /** The program's name in the command's folder: an address, not an import, for that folder decides which backends exist. */
  program: string;
  /** Another program. */
  url?: URL;
  workerData: unknown;
  resourceLimits?: ResourceLimits;
  onMessage(message: FromThread): void;
  /** The thread answers no more. Called once for a failure and again when it ends: the first error is the reason. */
  onEnd(error: EngineCrashedError): void;
}

/** A running worker thread that takes messages `ToThread` and sends `FromThread`. */
export class WorkerThread<ToThread, FromThread> {
  /** Settled when the thread has ended, after `onEnd`. Never rejected. */
  readonly exited: Promise<void>;
  readonly #worker: Worker;

  constructor({
    program,
    url,
    workerData,
    resourceLimits,
    onMessage,
    onEnd,
  }: WorkerThreadOptions<FromThread>) {
    const worker = new Worker(url ?? programUrl(program), { workerData, resourceLimits });
    worker.on("message", onMessage);
    worker.on("messageerror", (error) => onEnd(crashOf(error)));
    worker.on("error", (error) => onEnd(crashOf(error)));
    this.#worker = worker;
    this.exited = new Promise((resolve) => {
      worker.once("exit", (code) => {
        onEnd(new EngineCrashedError(`its thread ended with code ${code}`));
        resolve();
      });
    });
  }

  post(message: ToThread): void {
    this.#worker.postMessage(message);
  }

  /** Waits for the thread to end; ends it by force after `timeoutMs`. */
  async end(timeoutMs: number): Promise<void> {
    const timer = setTimeout(() => void this.#worker.terminate(), timeoutMs);
    await this.exited;
    clearTimeout(timer);
  }
}

function programUrl(program: string): URL {
  return new URL(`../cli/${program}${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url);
}

function crashOf(error: unknown): EngineCrashedError {
  const { code, message } = error as { code?: string; message?: string };
  const reason =
    code === "ERR_WORKER_OUT_OF_MEMORY"
      ? "its thread ran out of JavaScript heap memory"
      : `its thread failed: ${message ?? String(error)}`;
  return new EngineCrashedError(reason, { cause: error });
}
