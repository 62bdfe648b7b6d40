// Errors at the library's boundary: everything that is thrown is a `Ds4Error` with a stable code, never the server's
// HTTP kind of error.
import { CancelledError, Ds4Error, RequestError } from "../core/errors.ts";
import { QueueFullError } from "../scheduler/scheduler-errors.ts";
import { ApiError } from "../server/api-error.ts";
import { ContextFullError } from "../session/session-errors.ts";

/** The same failure as a `Ds4Error`: `request`, `context-full`, `queue-full`, `cancelled`, or what it already is. */
export function toDs4Error(thrown: unknown, queueLimit: number): Ds4Error {
  if (thrown instanceof Ds4Error) return thrown;
  if (!(thrown instanceof ApiError)) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    return new Ds4Error("session", `internal error: ${reason}`, { cause: thrown });
  }
  const { kind, message, details } = thrown;
  if (kind === "context-overflow") {
    const hint = "no room is left for an answer: shorten the messages or use a larger context";
    return new ContextFullError(0, details.promptTokens ?? 0, details.ctxTokens ?? 0, hint);
  }
  if (kind === "busy") return new QueueFullError(queueLimit, details.retryAfterMs ?? 1000);
  if (kind === "cancelled") return new CancelledError(message);
  const isRequest = kind === "invalid-request" || kind === "not-found" || kind === "too-large";
  if (isRequest) return new RequestError(message, details.param, { cause: thrown });
  return new Ds4Error("session", message, { cause: thrown });
}
