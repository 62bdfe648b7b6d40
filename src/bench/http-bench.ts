// Speed at contexts through an OpenAI-compatible server: streams /v1/completions and times what arrives. Each prompt
// starts differently, so that no server can answer from a cached prefix: prefill is the whole prompt, and its time
// is the time to the first token, queue and network included. Knows HTTP, not the engine.
import { CancelledError, UsageError } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import { readEvents } from "../net/event-stream.ts";
import {
  connectionError,
  type HttpAnswer,
  NetworkError,
  parseHttpUrl,
  refusalError,
  sendRequest,
} from "../net/http-request.ts";
import {
  decodeFigures,
  type FrontierOptions,
  type FrontierResult,
  type FrontierRow,
  listFrontiers,
  tokensPerSecond,
} from "./frontier-bench.ts";

/** What to measure, and how prompts are made. */
export interface HttpBenchOptions
  extends Pick<FrontierOptions, "ctxStart" | "ctxMax" | "stepIncr" | "stepMul" | "genTokens" | "onRow"> {
  /** Text of `count` tokens, different for each `variant` from its first token on. */
  makePrompt(count: number, variant: number): string;
  onProgress?: ProgressListener;
  signal?: AbortSignal;
  /** Milliseconds, monotonic; replaced in tests. */
  now?: () => number;
}

/** A server that answers. */
export interface HttpServer {
  /** Ends in /v1. */
  baseUrl: URL;
  /** First model that it lists. */
  model: string;
  /** What it calls itself, or empty. */
  software: string;
}

/** Longest list of models that is read. */
const MAX_LIST_BYTES = 1 << 20;
const WARM_UP_TOKENS = 16;

/** Asks the server at an address, with or without /v1, which model it runs. Throws `usage` for an address that is none, `network` when it does not answer. */
export async function openServer(address: string, signal?: AbortSignal): Promise<HttpServer> {
  const baseUrl = parseHttpUrl(address);
  const path = baseUrl.pathname.replace(/\/+$/, "");
  baseUrl.pathname = path.endsWith("/v1") ? path : `${path}/v1`;
  const url = under(baseUrl, "models");
  const answer = await sendRequest({ url, signal });
  if (answer.status !== 200) throw await refusalError(url, answer);
  const list = await readJson(url, answer, signal);
  const model = (list as { data?: { id?: unknown }[] }).data?.[0]?.id;
  if (typeof model !== "string") {
    throw new NetworkError(`${url.href}: expected a list of models with ids`, { isTransient: false });
  }
  return { baseUrl, model, software: String(answer.headers.server ?? "") };
}

/**
 * Runs the sweep: one request per context after a short one that is not counted, the first context again at the end.
 * Throws `network` when the server fails or sends no tokens, `cancelled`.
 */
export async function runHttpBench(server: HttpServer, options: HttpBenchOptions): Promise<FrontierResult> {
  if (options.genTokens < 1)
    throw new UsageError("--http needs --gen-tokens of at least 1: the first token is what it times");
  const frontiers = listFrontiers(options);
  const client = new CompletionClient(server, options);
  await client.measure(Math.min(WARM_UP_TOKENS, frontiers[0]), frontiers.length + 1);
  const rows: FrontierRow[] = [];
  for (const [index, frontier] of frontiers.entries()) {
    const row = await client.measure(frontier, index);
    rows.push(row);
    options.onRow?.(row);
  }
  return { rows, repeat: await client.measure(frontiers[0], frontiers.length) };
}

/** Of an event of /v1/completions, as far as it is read here. */
interface CompletionEvent {
  choices?: { text?: string; finish_reason?: string | null }[];
  usage?: {
    prompt_tokens?: number;
    completion_tokens?: number;
    prompt_tokens_details?: { cached_tokens?: number } | null;
  } | null;
  error?: { message?: string };
}

class CompletionClient {
  readonly #server: HttpServer;
  readonly #options: HttpBenchOptions;
  readonly #url: URL;
  /** Extensions that make runs comparable; dropped when the server refuses them. */
  #extensions: Record<string, unknown> = { ignore_eos: true, stream_options: { include_usage: true } };

  constructor(server: HttpServer, options: HttpBenchOptions) {
    this.#server = server;
    this.#options = options;
    this.#url = under(server.baseUrl, "completions");
  }

  async measure(promptTokens: number, variant: number): Promise<FrontierRow> {
    const { signal, now = () => performance.now() } = this.#options;
    const prompt = this.#options.makePrompt(promptTokens, variant);
    let started = now();
    let answer = await this.#send(prompt);
    if ([400, 422].includes(answer.status) && Object.keys(this.#extensions).length > 0) {
      answer.body.destroy();
      this.#extensions = {};
      started = now();
      answer = await this.#send(prompt);
    }
    if (answer.status !== 200) throw await refusalError(this.#url, answer);
    try {
      return await this.#readRow(answer, promptTokens, started, now);
    } catch (error) {
      throw connectionError(this.#url, error, signal);
    } finally {
      answer.body.destroy();
    }
  }

  #send(prompt: string): Promise<HttpAnswer> {
    const { genTokens, signal } = this.#options;
    const request = {
      model: this.#server.model,
      prompt,
      max_tokens: genTokens,
      temperature: 0,
      stream: true,
    };
    const body = JSON.stringify({ ...request, ...this.#extensions });
    const headers = { "content-type": "application/json", accept: "text/event-stream" };
    return sendRequest({ url: this.#url, method: "POST", headers, body, signal });
  }

  async #readRow(
    answer: HttpAnswer,
    asked: number,
    started: number,
    now: () => number,
  ): Promise<FrontierRow> {
    const arrivals: number[] = [];
    let usage: CompletionEvent["usage"];
    for await (const data of readEvents(answer.body)) {
      if (data === "[DONE]") break;
      const event = parseEvent(this.#url, data);
      usage = event.usage ?? usage;
      if (!event.choices?.some((choice) => choice.text)) continue;
      arrivals.push(now() - started);
      const { onProgress, genTokens } = this.#options;
      onProgress?.({ label: `request of ${asked}`, done: arrivals.length, total: genTokens, unit: "tokens" });
    }
    if (this.#options.signal?.aborted) throw new CancelledError("the benchmark was cancelled");
    if (arrivals.length === 0) {
      throw new NetworkError(`${this.#url.href}: the answer held no text`, { isTransient: false });
    }
    return toRow(asked, arrivals, usage);
  }
}

// A piece of text may hold several tokens: the server's own count, where it gives one, sets the rates.
function toRow(asked: number, arrivals: readonly number[], usage: CompletionEvent["usage"]): FrontierRow {
  const [ttftMs] = arrivals;
  const cachedTokens = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  const prefillTokens = (usage?.prompt_tokens ?? asked) - cachedTokens;
  const genTokens = Math.max(usage?.completion_tokens ?? 0, arrivals.length);
  const gaps = arrivals.slice(1).map((at, index) => at - arrivals[index]);
  const steadyMs = arrivals[arrivals.length - 1] - ttftMs;
  const steadyTps = tokensPerSecond(genTokens - 1, steadyMs);
  return {
    ...decodeFigures([0, ...gaps]),
    ctxTokens: asked,
    prefillTokens,
    prefillTps: tokensPerSecond(prefillTokens, ttftMs),
    genTokens,
    // The first token's own time hides in the time to it.
    genTps: steadyTps,
    genFirstMs: 0,
    genSteadyTokens: genTokens - 1,
    genSteadyTps: steadyTps,
    kvcacheBytes: 0,
    ttftMs,
  };
}

function parseEvent(url: URL, data: string): CompletionEvent {
  let event: CompletionEvent;
  try {
    event = JSON.parse(data);
  } catch (cause) {
    const message = `${url.href}: an event is not JSON: ${JSON.stringify(data.slice(0, 80))}`;
    throw new NetworkError(message, { isTransient: false, cause });
  }
  if (event.error === undefined) return event;
  throw new NetworkError(`${url.href}: ${event.error.message ?? "the answer ended in an error"}`, {
    isTransient: false,
  });
}

async function readJson(url: URL, answer: HttpAnswer, signal?: AbortSignal): Promise<unknown> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of answer.body) {
      parts.push(part);
      bytes += part.length;
      if (bytes > MAX_LIST_BYTES) throw new Error(`expected at most ${MAX_LIST_BYTES} bytes`);
    }
    return JSON.parse(Buffer.concat(parts).toString("utf8"));
  } catch (error) {
    throw connectionError(url, error, signal);
  }
}

function under(base: URL, name: string): URL {
  const url = new URL(base);
  url.pathname = `${url.pathname}/${name}`;
  return url;
}
