// Errors of scheduling, with what a caller needs to act on them.
import { Ds4Error } from "../core/errors.ts";

/** Too many requests wait. Nothing was started. */
export class QueueFullError extends Ds4Error {
  readonly queueLimit: number;
  /** A guess at when a place will be free. */
  readonly retryAfterMs: number;

  constructor(queueLimit: number, retryAfterMs: number) {
    super(
      "queue-full",
      `${queueLimit} requests wait already, the most that are accepted; try again in ${Math.ceil(retryAfterMs / 1000)} s`,
    );
    this.queueLimit = queueLimit;
    this.retryAfterMs = retryAfterMs;
  }
}

/** The backend failed while it computed this request. Others go on unless the health says `failed`. */
export class BackendFaultError extends Ds4Error {
  constructor(reason: string, options?: ErrorOptions) {
    super("backend-fault", `the backend failed: ${reason}`, options);
  }
}
