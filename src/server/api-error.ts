// A refusal or failure as HTTP knows it. Each wire puts it into its own API's shape.
import { Ds4Error } from "../core/errors.ts";
import { QueueFullError } from "../scheduler/scheduler-errors.ts";
import { ContextFullError, EngineCrashedError } from "../session/session-errors.ts";
import { RETRY_AFTER_S } from "./limits.ts";

/** What went wrong, independent of any API's names. */
export type ApiErrorKind =
  | "invalid-request"
  | "unauthorized"
  | "forbidden"
  | "not-found"
  | "too-large"
  | "context-overflow"
  | "busy"
  | "unavailable"
  | "cancelled"
  | "server";

const STATUS: Readonly<Record<ApiErrorKind, number>> = {
  "invalid-request": 400,
  unauthorized: 401,
  forbidden: 403,
  "not-found": 404,
  "too-large": 413,
  "context-overflow": 400,
  busy: 429,
  unavailable: 503,
  cancelled: 499,
  server: 500,
};

/** Facts that some APIs show beside the message. */
export interface ApiErrorDetails {
  /** Path of the field at fault, `messages[1].content`. */
  param?: string;
  /** A stable code where the API has one, `previous_response_not_found`. */
  code?: string;
  /** Tokens of the prompt and of the context, for an overflow. */
  promptTokens?: number;
  ctxTokens?: number;
  /** When to try again, if it is known. */
  retryAfterMs?: number;
}

/** An error to be answered to the client. */
export class ApiError extends Error {
  readonly kind: ApiErrorKind;
  readonly details: ApiErrorDetails;

  constructor(kind: ApiErrorKind, message: string, details: ApiErrorDetails = {}, options?: ErrorOptions) {
    super(message, options);
    this.name = "ApiError";
    this.kind = kind;
    this.details = details;
  }

  get status(): number {
    return STATUS[this.kind];
  }

  /** Seconds to wait before trying again, for what passes by itself. */
  get retryAfterSeconds(): number | undefined {
    if (this.kind !== "busy" && this.kind !== "unavailable") return undefined;
    const { retryAfterMs } = this.details;
    return retryAfterMs === undefined ? RETRY_AFTER_S : Math.max(1, Math.ceil(retryAfterMs / 1000));
  }
}

/** A field that is valid in the API but does nothing here: refused, because ignoring it would answer wrongly. */
export function notSupported(param: string, what: string): ApiError {
  return new ApiError("invalid-request", `${param}: ${what} is not supported yet`, {
    param,
    code: "unsupported_parameter",
  });
}

/** The prompt leaves no room for an answer. */
export function contextOverflow(promptTokens: number, ctxTokens: number): ApiError {
  return new ApiError(
    "context-overflow",
    `This model's maximum context length is ${ctxTokens} tokens. However, your messages resulted in ${promptTokens} ` +
      "tokens. Please reduce the length of the messages.",
    { param: "messages", code: "context_length_exceeded", promptTokens, ctxTokens },
  );
}

/** Turns whatever was thrown into an error for the client; internal details stay out of its message. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof ContextFullError) {
    return contextOverflow(error.usedTokens + error.addedTokens, error.capacityTokens);
  }
  if (error instanceof EngineCrashedError)
    return new ApiError("unavailable", error.message, {}, { cause: error });
  if (error instanceof Ds4Error) {
    const { code } = error;
    if (code === "template" || code === "request") return new ApiError("invalid-request", error.message);
    if (error instanceof QueueFullError) {
      return new ApiError("busy", error.message, { retryAfterMs: error.retryAfterMs });
    }
    if (code === "cancelled") return new ApiError("cancelled", error.message);
    if (code === "memory") return new ApiError("unavailable", error.message, {}, { cause: error });
    return new ApiError("server", error.message, {}, { cause: error });
  }
  return new ApiError("server", "internal error; the server's log has the details", {}, { cause: error });
}
