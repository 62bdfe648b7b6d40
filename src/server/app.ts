// The HTTP application, without a port: routes, authorization, errors. Which API has which routes is in `routes/`.
import { type Context, Hono } from "hono";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { type AnswerEvent, collectAnswer } from "./answer-events.ts";
import type { PreparedAnswer } from "./answer-run.ts";
import { ApiError, toApiError } from "./api-error.ts";
import { KeyCheck, OriginCheck } from "./auth.ts";
import { newId } from "./conversation-request.ts";
import { MAX_CACHE_KEY_UNITS } from "./limits.ts";
import type { ServerMetrics } from "./metrics.ts";
import { readJsonBody } from "./read-body.ts";
import { type ServerLog, SILENT_LOG } from "./server-log.ts";
import type { ServerState } from "./server-state.ts";
import { streamResponse } from "./stream-response.ts";
import { isPagePath } from "./web-files.ts";
import { openAiErrorBody } from "./wire/openai-errors.ts";
import type { WireJob } from "./wire/wire.ts";

/** What an application is made of. */
export interface AppParts {
  state: ServerState;
  metrics: ServerMetrics;
  log?: ServerLog;
  apiKeys?: readonly string[];
  /** Origins of pages that may use the server; `*` for all. Default none. */
  corsOrigins?: readonly string[];
  keepAliveMs?: number;
  version: string;
}

/** How an API shows errors. */
export type ErrorShape = (error: ApiError) => object;

/** Helpers that the routes are written with. */
export interface RouteTools {
  app: Hono;
  parts: AppParts;
  /** Answers a request that a wire understands. */
  answerRoute(
    path: string,
    errorBody: ErrorShape,
    parse: (body: unknown, tokenizer: Tokenizer, headers: Headers) => WireJob,
  ): void;
  /** A POST with a JSON body that is answered at once. */
  jsonRoute(path: string, errorBody: ErrorShape, answer: (body: unknown) => object): void;
  /** The shape of what goes wrong anywhere below `prefix`, unknown routes included. */
  errorsBelow(prefix: string, errorBody: ErrorShape): void;
}

/** Adds routes. */
export type AddRoutes = (tools: RouteTools) => void;

/** The application. `routes` decide which APIs it speaks. */
export function createApp(parts: AppParts, routes: readonly AddRoutes[]): Hono {
  const app = new Hono();
  const log = parts.log ?? SILENT_LOG;
  const shapes = new Map<string, ErrorShape>();
  const prefixes: [prefix: string, errorBody: ErrorShape][] = [];
  const shapeOf = (path: string) =>
    shapes.get(path) ?? prefixes.find(([prefix]) => path.startsWith(prefix))?.[1] ?? openAiErrorBody;
  guard(app, parts, log, shapeOf);
  const answerRoute: RouteTools["answerRoute"] = (path, errorBody, parse) => {
    shapes.set(path, errorBody);
    app.post(path, (c) => withErrors(c, errorBody, log, () => answer(c, parts, log, parse)));
  };
  const jsonRoute: RouteTools["jsonRoute"] = (path, errorBody, respond) => {
    shapes.set(path, errorBody);
    app.post(path, (c) =>
      withErrors(c, errorBody, log, async () => c.json(respond(await readJsonBody(c.req.raw)))),
    );
  };
  const errorsBelow: RouteTools["errorsBelow"] = (prefix, errorBody) =>
    void prefixes.push([prefix, errorBody]);
  for (const add of routes) add({ app, parts, answerRoute, jsonRoute, errorsBelow });
  app.notFound((c) => {
    const message = `no such endpoint: ${c.req.method} ${c.req.path}`;
    return errorResponse(c, shapeOf(c.req.path), new ApiError("not-found", message));
  });
  app.onError((thrown, c) => {
    const error = toApiError(thrown);
    if (error.kind === "server") log.line(`internal error: ${thrown.stack ?? thrown.message}`);
    return errorResponse(c, shapeOf(c.req.path), error);
  });
  return app;
}

/** Keys, origins and counting, before any route. */
function guard(app: Hono, parts: AppParts, log: ServerLog, shapeOf: (path: string) => ErrorShape): void {
  const keys = new KeyCheck(parts.apiKeys ?? []);
  const origins = new OriginCheck(parts.corsOrigins ?? [], !keys.isOpen);
  app.use(async (c, next) => {
    const started = performance.now();
    const allowed = origins.allowed(c.req.header("origin") ?? null);
    if (c.req.method === "OPTIONS") {
      if (allowed !== undefined) allowOrigin(c, allowed);
      return c.body(null, 204);
    }
    try {
      if (c.req.method !== "GET" && c.req.method !== "HEAD") origins.check(c.req.raw.headers);
      // Whether the server lives must be answered to load balancers, which have no key; they learn nothing else.
      const isOpen = c.req.path.startsWith("/health") || isPagePath(c.req.path);
      if (!isOpen) keys.check(c.req.raw.headers);
      await next();
    } catch (error) {
      c.res = errorResponse(c, shapeOf(c.req.path), toApiError(error));
    }
    if (allowed !== undefined) allowOrigin(c, allowed);
    const requestId = newId("req_");
    c.header("x-request-id", requestId); // OpenAI's name for it, then Anthropic's
    c.header("request-id", requestId);
    const { status } = c.res;
    const route = status === 404 || status === 401 ? "other" : routeName(c.req.path);
    parts.metrics.request(route, status);
    const ms = Math.round(performance.now() - started);
    if (!UNLOGGED.has(route)) log.line(`${requestId} ${c.req.method} ${route} ${status} ${ms} ms`);
  });
}

/** Asked for every few seconds, or many at a time by each page. */
const UNLOGGED: ReadonlySet<string> = new Set(["/health", "/metrics", "/web"]);

/** The path without ids, which would make endless labels. */
function routeName(path: string): string {
  return path.replace(/^\/v1\/(models|responses)\/.+$/, "/v1/$1/{id}").replace(/^\/(health|web)\/.*/, "/$1");
}

function allowOrigin(c: Context, origin: string): void {
  c.header("access-control-allow-origin", origin);
  c.header("vary", "Origin");
  c.header("access-control-allow-methods", "GET, POST, OPTIONS");
  c.header(
    "access-control-allow-headers",
    c.req.header("access-control-request-headers") ?? "authorization, content-type",
  );
  c.header("access-control-max-age", "600");
}

/** Runs a handler; what it throws becomes a response in the API's shape. */
async function withErrors(
  c: Context,
  errorBody: ErrorShape,
  log: ServerLog,
  handle: () => Promise<Response>,
): Promise<Response> {
  try {
    return await handle();
  } catch (thrown) {
    const error = toApiError(thrown);
    if (error.kind === "server") log.line(`internal error: ${(thrown as Error).stack ?? thrown}`);
    return errorResponse(c, errorBody, error);
  }
}

function errorResponse(c: Context, errorBody: ErrorShape, error: ApiError): Response {
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (error.retryAfterSeconds !== undefined) headers["retry-after"] = String(error.retryAfterSeconds);
  if (error.kind === "unauthorized") headers["www-authenticate"] = "Bearer";
  // The official clients obey it; one agent else tries a wrong key for minutes.
  if (error.status < 429) headers["x-should-retry"] = "false";
  return c.body(JSON.stringify(errorBody(error)), error.status as 400, headers);
}

/** The names under which coding agents send their session. */
function sessionOf(headers: Headers): string | undefined {
  const names = ["x-claude-code-session-id", "x-session-id", "x-session-affinity", "session-id"];
  return names
    .map((name) => headers.get(name))
    .find((value) => value !== null)
    ?.slice(0, MAX_CACHE_KEY_UNITS);
}

async function answer(
  c: Context,
  parts: AppParts,
  log: ServerLog,
  parse: (body: unknown, tokenizer: Tokenizer, headers: Headers) => WireJob,
): Promise<Response> {
  const runner = parts.state.require();
  const body = await readJsonBody(c.req.raw);
  if (log.traces) log.trace("request", { path: c.req.path, body });
  const job = parse(body, runner.model.tokenizer, c.req.raw.headers);
  const cacheKey = job.request.cacheKey ?? sessionOf(c.req.raw.headers);
  const prepared: PreparedAnswer = runner.prepare({ ...job.request, cacheKey });
  const controller = new AbortController();
  const abort = () => {
    controller.abort();
    parts.state.removeAnswer(abort);
  };
  parts.state.addAnswer(abort);
  if (c.req.raw.signal.aborted) abort();
  c.req.raw.signal.addEventListener("abort", abort, { once: true });
  const start = {
    promptTokens: prepared.promptTokens,
    modelId: runner.model.id,
    createdSeconds: Math.floor(Date.now() / 1000),
  };
  let events: AsyncGenerator<AnswerEvent, void>;
  try {
    events = runner.start(prepared, controller.signal);
  } catch (error) {
    parts.state.removeAnswer(abort);
    throw error;
  }
  if (!job.isStream) {
    try {
      return c.json(job.answer(await collectAnswer(events), start));
    } finally {
      parts.state.removeAnswer(abort);
    }
  }
  const frames = async function* () {
    try {
      yield* job.frames(events, start);
    } catch (thrown) {
      const error = toApiError(thrown);
      if (error.kind === "server") log.line(`answer failed: ${(thrown as Error).stack ?? thrown}`);
      yield job.failure(error);
    } finally {
      parts.state.removeAnswer(abort);
    }
  };
  const { contentType, keepAlive } = job;
  return streamResponse(frames(), { contentType, keepAlive, keepAliveMs: parts.keepAliveMs, abort });
}
