// HTTP requests with the limits that a command line needs: only http and https, few redirects, no wait without end for
// a silent server. Built on node:http, whose streams can be paused and whose silence is ours to judge; the built-in
// fetch gives up after five minutes without headers, less than a long prompt takes.
import { type IncomingHttpHeaders, type IncomingMessage, type RequestOptions, request } from "node:http";
import { request as secureRequest } from "node:https";
import { CancelledError, Ds4Error, UsageError } from "../core/errors.ts";

/** More than any file host uses; a loop ends soon. */
const MAX_REDIRECTS = 10;
const MAX_HEADER_BYTES = 64 * 1024;
/** What is shown of an answer that explains a refusal. */
const MAX_EXPLANATION_BYTES = 4096;

/** A server cannot be reached, breaks off or answers wrongly. */
export class NetworkError extends Ds4Error {
  /** Whether the same request may succeed later. */
  readonly isTransient: boolean;
  /** HTTP status, if there was an answer. */
  readonly status: number | undefined;
  /** How long the server asks to wait, if it does. */
  readonly retryAfterSeconds: number | undefined;

  constructor(
    message: string,
    details: { isTransient: boolean; status?: number; retryAfterSeconds?: number; cause?: unknown },
  ) {
    super("network", message, { cause: details.cause });
    this.isTransient = details.isTransient;
    this.status = details.status;
    this.retryAfterSeconds = details.retryAfterSeconds;
  }
}

/** One request. */
export interface HttpRequest {
  url: URL;
  method?: "GET" | "POST";
  headers?: Readonly<Record<string, string>>;
  body?: string;
  signal?: AbortSignal;
  /** Silence, before or between bytes, that counts as a broken connection. Default: wait for ever. */
  idleTimeoutMs?: number;
}

/** An answer whose body has not been read. Read it or destroy it. */
export interface HttpAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  body: IncomingMessage;
  /** Headers of the redirects that led here, first one first. */
  redirects: IncomingHttpHeaders[];
}

/** Parses an address. Throws `usage` for anything but http and https, and for addresses with a password. */
export function parseHttpUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new UsageError(`expected an http or https address, got ${JSON.stringify(text)}`);
  }
  if (url.username !== "" || url.password !== "") {
    throw new UsageError("expected an address without user name and password");
  }
  return url;
}

/**
 * Sends a request and follows redirects, never from https to http. Any status but a redirect is an answer. Throws
 * `network` when no answer comes, `cancelled`.
 */
export async function sendRequest(options: HttpRequest): Promise<HttpAnswer> {
  const redirects: IncomingHttpHeaders[] = [];
  let { url } = options;
  for (;;) {
    const body = await sendOnce({ ...options, url });
    const status = body.statusCode ?? 0;
    const { location } = body.headers;
    if (![301, 302, 303, 307, 308].includes(status) || location === undefined) {
      return { status, headers: body.headers, body, redirects };
    }
    body.destroy();
    redirects.push(body.headers);
    if (redirects.length > MAX_REDIRECTS) {
      throw new NetworkError(`${options.url.host}: more than ${MAX_REDIRECTS} redirects`, {
        isTransient: false,
      });
    }
    url = redirectTarget(url, location);
  }
}

function redirectTarget(from: URL, location: string): URL {
  const target = URL.canParse(location, from.href) ? new URL(location, from) : undefined;
  const isAllowed =
    target?.protocol === "https:" || (target?.protocol === "http:" && from.protocol === "http:");
  if (target === undefined || !isAllowed) {
    const shown = target?.protocol ?? "an address that cannot be read";
    throw new NetworkError(`${from.host}: redirect to ${shown}: only https, or http from http, is followed`, {
      isTransient: false,
    });
  }
  return target;
}

function sendOnce(options: HttpRequest & { url: URL }): Promise<IncomingMessage> {
  const { url, method = "GET", headers, body, signal, idleTimeoutMs } = options;
  const send = url.protocol === "https:" ? secureRequest : request;
  const settings: RequestOptions = {
    method,
    headers: { ...headers },
    maxHeaderSize: MAX_HEADER_BYTES,
    signal,
  };
  // Kept connections of a host that just broke off would break the next attempt too.
  settings.agent = false;
  return new Promise((resolve, reject) => {
    const outgoing = send(url, settings, resolve);
    outgoing.on("error", (error) => reject(connectionError(url, error, signal)));
    if (idleTimeoutMs !== undefined) {
      outgoing.setTimeout(idleTimeoutMs, () => {
        outgoing.destroy(new Error(`no bytes for ${Math.round(idleTimeoutMs / 1000)} s`));
      });
    }
    outgoing.end(body);
  });
}

/** Codes of failures that waiting does not mend. */
const LASTING_CODES = /^(ENOTFOUND|ERR_INVALID|CERT_|UNABLE_TO|SELF_SIGNED|DEPTH_ZERO|ERR_TLS)/;

/** The error of a connection that failed before or during an answer. */
export function connectionError(url: URL, error: unknown, signal?: AbortSignal): Ds4Error {
  if (signal?.aborted) return new CancelledError();
  if (error instanceof Ds4Error) return error;
  const { code, message } = error as NodeJS.ErrnoException;
  const isTransient = !LASTING_CODES.test(code ?? "");
  return new NetworkError(`${url.host}: ${message || code}`, { isTransient, cause: error });
}

/** The error for an answer with a status that is no success; reads a little of the body, which may say why. */
export async function refusalError(url: URL, answer: HttpAnswer): Promise<NetworkError> {
  const { status, headers } = answer;
  const explanation = (await readSome(answer.body)).replace(/\s+/g, " ").trim();
  const seconds = Number(headers["retry-after"]);
  const hints: Record<number, string> = {
    401: "; it wants a login, which this command does not offer",
    403: "; it wants a login or an accepted licence, which this command does not offer",
    404: "; check the name",
  };
  const shown = explanation === "" || /^</.test(explanation) ? "" : `: ${explanation.slice(0, 300)}`;
  return new NetworkError(`${url.host} answered ${status}${hints[status] ?? ""}${shown}`, {
    status,
    isTransient: [408, 425, 429, 500, 502, 503, 504].includes(status),
    retryAfterSeconds: Number.isFinite(seconds) && seconds >= 0 ? seconds : undefined,
  });
}

async function readSome(body: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of body) {
      parts.push(part);
      bytes += part.length;
      if (bytes >= MAX_EXPLANATION_BYTES) break;
    }
  } catch {
    // The status says enough.
  }
  body.destroy();
  return Buffer.concat(parts).toString("utf8");
}
