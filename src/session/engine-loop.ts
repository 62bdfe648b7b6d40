// The worker's side of the engine: owns the backend and one session, takes calls one at a time and answers them.
// Which backend and tokenizer run is the business of whoever starts the loop.
import type { MessagePort } from "node:worker_threads";
import type { Backend } from "../backend/backend.ts";
import type { Progress, ProgressListener } from "../core/progress.ts";
import {
  type EngineCall,
  type EngineInfo,
  type EngineStats,
  type EngineWorkerOptions,
  type FromWorker,
  type PrefillResult,
  type ToWorker,
  toWireError,
} from "./engine-protocol.ts";
import { evaluate } from "./evaluate.ts";
import { generate, type OpenConstraint, type TokenDecoder } from "./generate.ts";
import { type CancelSignal, Session } from "./session.ts";

/** Context when none is asked for, as in ds4; models trained for less get less. */
export const DEFAULT_CTX_TOKENS = 32768;
/** Progress is drawn by people's terminals: more often is waste. */
const PROGRESS_INTERVAL_MS = 50;

/** What the loop runs on; closed by the loop. */
export interface EngineParts {
  backend: Backend;
  createDecoder(): TokenDecoder;
  /** Without it, requests with a constraint are refused. */
  openConstraint?: OpenConstraint;
  warnings: string[];
}

/** Opens the parts. May take minutes; reports progress. */
export type OpenParts = (
  options: EngineWorkerOptions,
  onProgress: ProgressListener,
) => EngineParts | Promise<EngineParts>;

/**
 * Opens the parts and serves calls from `port` until `close`. Errors of a call are answered to that call; an error
 * while opening is sent as `failed` and ends the loop.
 */
export async function serveEngine(port: MessagePort, options: EngineWorkerOptions, openParts: OpenParts) {
  const send = (message: FromWorker) => port.postMessage(message);
  const started = performance.now();
  let parts: EngineParts;
  try {
    parts = await openParts(options, throttledProgress(0, send));
  } catch (error) {
    send({ kind: "failed", error: toWireError(error) });
    port.close();
    return;
  }
  const { backend } = parts;
  const info: EngineInfo = {
    backendName: backend.name,
    backendDescription: backend.description,
    spec: backend.spec,
    warnings: parts.warnings,
    loadSeconds: (performance.now() - started) / 1000,
    weightBytes: backend.stats().weightBytes,
  };
  const runner = new CallRunner(parts, options.ctxTokens, send);
  port.on("message", (message: ToWorker) => {
    try {
      const result = runner.run(message);
      send({ kind: "result", id: message.id, result });
    } catch (error) {
      send({ kind: "error", id: message.id, error: toWireError(error) });
    }
    if (message.call.kind === "close") port.close();
  });
  send({ kind: "ready", info });
}

class CallRunner {
  readonly #parts: EngineParts;
  readonly #send: (message: FromWorker) => void;
  #ctxTokens: number;
  #session: Session | undefined;

  constructor(parts: EngineParts, ctxTokens: number | undefined, send: (message: FromWorker) => void) {
    this.#parts = parts;
    this.#send = send;
    this.#ctxTokens = ctxTokens ?? Math.min(DEFAULT_CTX_TOKENS, parts.backend.spec.contextTokens);
  }

  run({ id, call, cancel }: ToWorker): unknown {
    const flag = new Int32Array(cancel);
    const signal: CancelSignal = {
      get aborted() {
        return Atomics.load(flag, 0) !== 0;
      },
    };
    const onProgress = throttledProgress(id, this.#send);
    switch (call.kind) {
      case "generate": {
        const decoder = this.#parts.createDecoder();
        const { openConstraint } = this.#parts;
        const context = { session: this.#openSession(), decoder, openConstraint, signal, onProgress };
        for (const event of generate(context, call.request)) this.#send({ kind: "event", id, event });
        return undefined;
      }
      case "prefill":
        return this.#prefill(call, signal, onProgress);
      case "evaluate":
        return evaluate(this.#parts.backend, call.request, { signal, onProgress });
      case "resize":
        this.#session?.close();
        this.#session = undefined;
        this.#ctxTokens = call.ctxTokens;
        return undefined;
      case "stats":
        return this.#stats();
      case "close":
        this.#session?.close();
        this.#parts.backend.close();
        return undefined;
    }
  }

  // Opened at the first use: a run that only scores a text needs no session.
  #openSession(): Session {
    this.#session ??= new Session(this.#parts.backend, this.#ctxTokens);
    return this.#session;
  }

  #prefill(
    call: Extract<EngineCall, { kind: "prefill" }>,
    signal: CancelSignal,
    onProgress: ProgressListener,
  ): PrefillResult {
    const session = this.#openSession();
    const started = performance.now();
    const { chunkTokens } = call;
    const { reusedTokens } = session.sync(call.tokens, { chunkTokens, signal, onProgress });
    return { logits: session.logits.slice(), reusedTokens, seconds: (performance.now() - started) / 1000 };
  }

  #stats(): EngineStats {
    const session = this.#session;
    const sessionTokens = session?.lengthTokens ?? 0;
    return { ...this.#parts.backend.stats(), sessionTokens, ctxTokens: this.#ctxTokens };
  }
}

/** Forwards the first report, the last, and at most one per interval between. */
function throttledProgress(id: number, send: (message: FromWorker) => void): ProgressListener {
  let last = Number.NEGATIVE_INFINITY;
  return (progress: Progress) => {
    const now = performance.now();
    if (now - last < PROGRESS_INTERVAL_MS && progress.done < progress.total) return;
    last = now;
    send({ kind: "progress", id, progress });
  };
}
