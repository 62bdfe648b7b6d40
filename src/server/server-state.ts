// Where the server stands: loading, ready, failed, stopping. The HTTP side runs before the model is there.

import type { AnswerRunner } from "./answer-run.ts";
import { ApiError } from "./api-error.ts";

/** The phases in their usual order. */
export type ServerPhase = "loading" | "ready" | "failed" | "stopping";

/** Holds the runner once there is one. */
export class ServerState {
  phase: ServerPhase = "loading";
  /** Why it failed. */
  reason: string | undefined;
  #runner: AnswerRunner | undefined;
  readonly #aborts = new Set<() => void>();

  get runner(): AnswerRunner | undefined {
    return this.#runner;
  }

  /** The model is loaded. */
  serve(runner: AnswerRunner): void {
    this.#runner = runner;
    this.phase = "ready";
  }

  /** No request will be answered any more. */
  fail(reason: string): void {
    this.phase = "failed";
    this.reason = reason;
  }

  /** New requests are refused, running ones may end. */
  stop(): void {
    if (this.phase !== "failed") this.phase = "stopping";
  }

  /** An answer runs; `abort` ends it. */
  addAnswer(abort: () => void): void {
    this.#aborts.add(abort);
  }

  /** The answer is over. */
  removeAnswer(abort: () => void): void {
    this.#aborts.delete(abort);
  }

  /** Answers that run or wait. */
  get answerCount(): number {
    return this.#aborts.size;
  }

  /** Ends every running answer. */
  abortAll(): void {
    for (const abort of this.#aborts) abort();
  }

  /** The runner. Throws `unavailable` unless the server is ready. */
  require(): AnswerRunner {
    if (this.phase === "ready" && this.#runner !== undefined) return this.#runner;
    const reasons = {
      loading: "the model is loading; try again later",
      ready: "the model is loading; try again later",
      failed: `the server has failed and must be restarted: ${this.reason}`,
      stopping: "the server is shutting down",
    };
    throw new ApiError("unavailable", reasons[this.phase]);
  }
}
