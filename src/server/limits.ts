// Every limit that a request can meet, by name. A request above one is refused with the limit's value, before work is
// done for it.

/** Largest request body. A million tokens of text with its JSON escapes stay well below. */
export const MAX_BODY_BYTES = 64 * 1024 * 1024;
/** Deepest nesting of a body: real tool schemas stay below 30. */
export const MAX_JSON_DEPTH = 128;
/** Most messages or input items of one request. */
export const MAX_MESSAGES = 20_000;
/** Most tools of one request. */
export const MAX_TOOLS = 1024;
/** Most token ids in a `/detokenize` request or in a prompt given as ids. */
export const MAX_TOKEN_IDS = 4_000_000;

/** Longest name of a conversation that is looked at, in UTF-16 units. */
export const MAX_CACHE_KEY_UNITS = 200;

/** Request line and headers together. Node answers 431 above it. */
export const MAX_HEADER_BYTES = 32 * 1024;
/** Time for a client to send its headers, then the whole request: what a dripping client can hold a socket. */
export const HEADERS_TIMEOUT_MS = 15_000;
/** See `HEADERS_TIMEOUT_MS`. */
export const REQUEST_TIMEOUT_MS = 120_000;
/** How often Node looks for connections past their time. */
export const TIMEOUT_CHECK_MS = 2_000;
/** How long an idle connection is kept for the client's next request. */
export const IDLE_CONNECTION_MS = 65_000;
/** Most open connections; more are closed at once. */
export const MAX_CONNECTIONS = 1024;

/** Silence on a stream after which a comment or a `ping` is sent. Clients give up after 15 s and more. */
export const KEEP_ALIVE_MS = 5_000;
/** Least time between two writes to one stream: tokens that come faster share one. No reader sees the difference. */
export const WRITE_GAP_MS = 10;
/** A client that takes nothing from its stream for this long is given up. */
export const MAX_STALL_MS = 120_000;
/** Requests that may wait for their turn; more are refused with 429. */
export const MAX_QUEUED_REQUESTS = 64;
/** What 429 and 503 tell clients to wait. */
export const RETRY_AFTER_S = 2;
/** How long running answers may go on after the server was asked to stop. */
export const SHUTDOWN_GRACE_MS = 5_000;

/** Stored responses for `previous_response_id`: the oldest go first. */
export const MAX_STORED_RESPONSES = 1000;
/** Text of all stored responses, in UTF-16 units. */
export const MAX_STORED_UNITS = 64 * 1024 * 1024;
