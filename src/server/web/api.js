// Requests to the server this page came from: the key, errors in words, streams of events.

const KEY = "ds4.key";

/** What the server, or the way to it, said no with. */
export class ServerError extends Error {
  /**
   * @param {string} message for people
   * @param {number} status 0 when there was no response
   */
  constructor(message, status) {
    super(message);
    this.name = "ServerError";
    this.status = status;
  }
}

/** The key of this tab; gone when the tab is. */
export const apiKey = {
  get() {
    return sessionStorage.getItem(KEY) ?? "";
  },
  /** @param {string} key empty forgets it */
  set(key) {
    if (key === "") sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, key);
  },
};

/**
 * A response with a good status. Throws `ServerError`, or an `AbortError` when the signal was used.
 * @param {string} path
 * @param {{ body?: unknown, signal?: AbortSignal }} [options] a body makes it a POST of JSON
 */
export async function request(path, { body, signal } = {}) {
  /** @type {Record<string, string>} */
  const headers = {};
  const key = apiKey.get();
  if (key !== "") headers["authorization"] = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: "omit",
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ServerError("The server cannot be reached. Is it still running?", 0);
  }
  if (response.ok) return response;
  throw new ServerError(await failureText(response), response.status);
}

/** @param {Response} response */
async function failureText(response) {
  const said = await response
    .json()
    .then((body) => body?.error?.message ?? body?.reason ?? "")
    .catch(() => "");
  const reasons = /** @type {Record<number, string>} */ ({
    401: "The server wants an API key.",
    403: "The server does not let this page use it.",
    413: "This is more than the server takes in one request.",
    429: "The server is busy.",
    503: "The server is not ready.",
  });
  const reason = reasons[response.status];
  if (typeof said !== "string" || said === "")
    return reason ?? `The server answered with status ${response.status}.`;
  return reason === undefined ? `The server says: ${said}` : `${reason} It says: ${said}`;
}

/**
 * The JSON payloads of a stream of server-sent events, until `[DONE]`. Throws `ServerError` for an error in the stream
 * and for a stream that breaks off.
 * @param {Response} response
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<any, void>}
 */
export async function* streamedEvents(response, signal) {
  if (response.body === null) throw new ServerError("The server sent nothing.", response.status);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      rest += value;
      const events = rest.split("\n\n");
      rest = events.pop() ?? "";
      for (const event of events) {
        const data = dataOf(event);
        if (data === "[DONE]") return;
        if (data === "") continue; // a comment that keeps the connection
        const payload = JSON.parse(data);
        if (payload.error)
          throw new ServerError(`The answer failed. The server says: ${payload.error.message}`, 500);
        yield payload;
      }
    }
  } catch (error) {
    if (error instanceof ServerError || signal.aborted) throw error;
    throw new ServerError("The connection to the server broke off before the answer was complete.", 0);
  } finally {
    reader.cancel().catch(() => {});
  }
  if (!signal.aborted) throw new ServerError("The answer ended before it was complete.", 0);
}

/** @param {string} event */
function dataOf(event) {
  return event
    .split("\n")
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5).trimStart())
    .join("\n");
}
