import { expect, it } from "vitest";
import { CancelledError, Ds4Error, RequestError } from "../core/errors.ts";
import { QueueFullError } from "../scheduler/scheduler-errors.ts";
import { ApiError, contextOverflow, notSupported } from "../server/api-error.ts";
import { ContextFullError, EngineCrashedError } from "../session/session-errors.ts";
import { toDs4Error } from "./api-failure.ts";

it("passes the package's own errors on", () => {
  for (const error of [new CancelledError(), new EngineCrashedError("x"), new Ds4Error("backend-fault", "x")])
    expect(toDs4Error(error, 1)).toBe(error);
});

it.each([
  [notSupported("n", "more than one choice"), RequestError, { code: "request", param: "n" }],
  [new ApiError("not-found", "x", { param: "model" }), RequestError, { code: "request", param: "model" }],
  [
    contextOverflow(600, 512),
    ContextFullError,
    { code: "context-full", addedTokens: 600, capacityTokens: 512 },
  ],
  [
    new ApiError("busy", "x", { retryAfterMs: 5000 }),
    QueueFullError,
    { code: "queue-full", queueLimit: 7, retryAfterMs: 5000 },
  ],
  [new ApiError("cancelled", "x"), CancelledError, { code: "cancelled" }],
  [new ApiError("server", "x"), Ds4Error, { code: "session", message: "x" }],
  [new TypeError("x is undefined"), Ds4Error, { code: "session", message: "internal error: x is undefined" }],
  ["text", Ds4Error, { code: "session", message: "internal error: text" }],
])("%s becomes a typed error", (thrown, type, fields) => {
  const error = toDs4Error(thrown, 7);
  expect(error).toBeInstanceOf(type);
  expect(error).toMatchObject(fields);
});
