// `engine.chat.completions`: the server's chat wire without HTTP. A request goes through the same checks, the same
// template and the same parser, and comes back in the same shapes.
import { CancelledError } from "../core/errors.ts";
import { collectAnswer } from "../server/answer-events.ts";
import type { AnswerRunner } from "../server/answer-run.ts";
import { type ChatJob, chatJob } from "../server/wire/openai-chat.ts";
import type { ChatCompletion, ChatCompletionChunk } from "../server/wire/openai-chat-types.ts";
import type { AnswerStart } from "../server/wire/wire.ts";
import type { ChatCompletionParams, RequestOptions } from "./chat-params.ts";
import { ChatCompletionStream } from "./chat-stream.ts";

/** What the completions work with. */
export interface ChatCompletionsParts {
  runner: AnswerRunner;
  /** A running answer's controller, so that closing the engine ends it; returns what is called when it is over. */
  register(controller: AbortController): () => void;
  /** Turns whatever was thrown into a `Ds4Error`. */
  failure(thrown: unknown): Error;
}

/** Answers chat requests. */
export class ChatCompletions {
  readonly #parts: ChatCompletionsParts;

  constructor(parts: ChatCompletionsParts) {
    this.#parts = parts;
  }

  /**
   * Answers `params.messages`. Rejects with a `Ds4Error`: `request` (a wrong field; `param` names it), `template`,
   * `context-full`, `queue-full`, `cancelled` after an abort, `backend-fault`, `session` once the engine is closed. What
   * is wrong with the request is known before anything is computed, with `stream` too.
   */
  create(
    params: ChatCompletionParams & { stream: true },
    options?: RequestOptions,
  ): Promise<ChatCompletionStream>;
  create(
    params: ChatCompletionParams & { stream?: false | null },
    options?: RequestOptions,
  ): Promise<ChatCompletion>;
  create(
    params: ChatCompletionParams,
    options?: RequestOptions,
  ): Promise<ChatCompletion | ChatCompletionStream>;
  async create(
    params: ChatCompletionParams,
    { signal }: RequestOptions = {},
  ): Promise<ChatCompletion | ChatCompletionStream> {
    const { runner, register, failure } = this.#parts;
    const controller = new AbortController();
    const unregister = register(controller);
    const abort = () => controller.abort();
    const release = () => {
      signal?.removeEventListener("abort", abort);
      unregister();
    };
    try {
      if (signal?.aborted) throw new CancelledError();
      signal?.addEventListener("abort", abort, { once: true });
      const job = chatJob(params, runner.model.tokenizer);
      const prepared = runner.prepare(job.request);
      const start: AnswerStart = {
        promptTokens: prepared.promptTokens,
        modelId: runner.model.id,
        createdSeconds: Math.floor(Date.now() / 1000),
      };
      const events = runner.start(prepared, controller.signal);
      if (job.isStream) {
        const chunks = this.#chunks(job.chunks(events, start), release);
        return new ChatCompletionStream(chunks, controller, release);
      }
      const answer = job.answer(await collectAnswer(events), start);
      release();
      return answer;
    } catch (thrown) {
      release();
      throw failure(thrown);
    }
  }

  async *#chunks(
    chunks: ReturnType<ChatJob["chunks"]>,
    release: () => void,
  ): AsyncGenerator<ChatCompletionChunk, void> {
    try {
      yield* chunks;
    } catch (thrown) {
      throw this.#parts.failure(thrown);
    } finally {
      release();
    }
  }
}
