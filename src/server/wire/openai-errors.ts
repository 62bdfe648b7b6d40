// Errors in OpenAI's shape, which most other local servers use too.
import type { ApiError, ApiErrorKind } from "../api-error.ts";

const TYPES: Readonly<Record<ApiErrorKind, string>> = {
  "invalid-request": "invalid_request_error",
  unauthorized: "authentication_error",
  forbidden: "permission_error",
  "not-found": "not_found_error",
  "too-large": "invalid_request_error",
  "context-overflow": "invalid_request_error",
  busy: "rate_limit_error",
  unavailable: "server_error",
  cancelled: "server_error",
  server: "server_error",
};

const CODES: Partial<Record<ApiErrorKind, string>> = {
  unauthorized: "invalid_api_key",
  busy: "server_busy",
  unavailable: "service_unavailable",
};

/** `{ error: { message, type, param, code } }`; an overflow adds both counts. */
export function openAiErrorBody(error: ApiError): object {
  const { param, code, promptTokens, ctxTokens } = error.details;
  return {
    error: {
      message: error.message,
      type: TYPES[error.kind],
      param: param ?? null,
      code: code ?? CODES[error.kind] ?? null,
      ...(promptTokens === undefined ? {} : { n_prompt_tokens: promptTokens, n_ctx: ctxTokens }),
    },
  };
}
