// How a server ends: what it waits for, and how it lets its clients go.
import { setTimeout as sleep } from "node:timers/promises";
import type { HttpServer } from "../server/http-server.ts";
import type { ServerState } from "../server/server-state.ts";
import { EXIT } from "./exit-codes.ts";
import type { OpenLog } from "./serve-log.ts";
import { note, type Terminal } from "./terminal.ts";

const STOP_CHECK_MS = 100;

/** Lets running answers end for a while, then ends them. */
export async function shutDown(
  state: ServerState,
  http: HttpServer,
  graceMs: number,
  terminal: Terminal,
): Promise<void> {
  state.stop();
  if (state.answerCount > 0)
    note(terminal, `stopping: ${state.answerCount} answers may go on for ${graceMs / 1000} s`);
  void http.stop();
  const started = performance.now();
  // Idle connections of clients stay open for their next request, so what counts is whether an answer is going on.
  while (state.answerCount > 0 && performance.now() - started < graceMs) await sleep(STOP_CHECK_MS);
  state.abortAll();
  await sleep(STOP_CHECK_MS); // the last bytes are still on their way
}

/** Waits for what ends the server: a signal (a second one at once) or a fault. */
export class Ending {
  readonly reason: Promise<"signal" | "fault">;
  #resolve!: (reason: "signal" | "fault") => void;
  #isStopping = false;
  readonly #onSignal = () => {
    if (this.#isStopping) process.exit(EXIT.interrupted);
    this.#isStopping = true;
    this.#resolve("signal");
  };

  constructor() {
    this.reason = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    process.on("SIGINT", this.#onSignal);
    process.on("SIGTERM", this.#onSignal);
  }

  fail(reason: string, state: ServerState, log: OpenLog): void {
    if (state.phase === "failed") return;
    state.fail(reason);
    log.line(`fatal: ${reason}; the process ends, start it again`);
    this.#resolve("fault");
  }

  /** The result, or undefined when a signal came first: loading cannot be interrupted, so the process must end. */
  async unlessStopped<T>(work: Promise<T>): Promise<T | undefined> {
    const stopped = this.reason.then(() => undefined);
    const result = await Promise.race([work, stopped]);
    if (result === undefined) process.exit(EXIT.interrupted);
    return result;
  }

  dispose(): void {
    process.removeListener("SIGINT", this.#onSignal);
    process.removeListener("SIGTERM", this.#onSignal);
  }
}
