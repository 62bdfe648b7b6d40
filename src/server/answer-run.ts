// From a request to a stream of events: render, wait for a place, sample, split the text, count. The only file of the
// server that talks to the source of answers.

import { CancelledError } from "../core/errors.ts";
import { createAnswerParser } from "../dsml/answer-parser.ts";
import type { GenerateEvent, GenerateRequest } from "../session/generate.ts";
import { resolveSampling } from "../session/sampling-params.ts";
import { StopMatcher } from "../session/stop-strings.ts";
import { encodePieces, piecesToText } from "../template/pieces.ts";
import { renderConversation } from "../template/render.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { SPECIAL_TEXT } from "../tokenizer/tokenizer-tables.ts";
import { Admission, type Ticket } from "./admission.ts";
import type { AnswerEvent } from "./answer-events.ts";
import { AnswerMemory, PrefixDigest } from "./answer-memory.ts";
import type { ServedModel } from "./answer-source.ts";
import { AnswerText } from "./answer-text.ts";
import { ApiError, contextOverflow } from "./api-error.ts";
import { CallMemory } from "./call-memory.ts";
import type { ConversationRequest } from "./conversation-request.ts";
import type { ServerMetrics } from "./metrics.ts";
import type { ServerLog } from "./server-log.ts";

/** A request that has passed every check and only needs to be computed. */
export interface PreparedAnswer {
  request: ConversationRequest;
  generate: GenerateRequest & { cacheKey?: string };
  promptTokens: number;
  /** The prompt ends inside an open think tag. */
  startsThinking: boolean;
  /** Digest of the prompt for the memory of answers; undefined where the answer does not begin at a mark. */
  prefix: string | undefined;
}

interface RunState {
  hasBegun: boolean;
  stream: AsyncIterable<GenerateEvent> | undefined;
}

/** What answers are made with. */
export interface AnswerRunnerOptions {
  model: ServedModel;
  maxQueued: number;
  metrics: ServerMetrics;
  log: ServerLog;
  /** Default: empty ones. */
  calls?: CallMemory;
  answers?: AnswerMemory;
  /** Called when the source failed in a way that no later request survives. */
  onFault(error: Error): void;
}

/** Makes answers with one model. */
export class AnswerRunner {
  readonly model: ServedModel;
  readonly admission: Admission;
  readonly calls: CallMemory;
  readonly answers: AnswerMemory;
  readonly #options: AnswerRunnerOptions;

  constructor(options: AnswerRunnerOptions) {
    this.model = options.model;
    this.admission = new Admission(options.model.concurrency, options.maxQueued);
    this.calls = options.calls ?? new CallMemory();
    this.answers = options.answers ?? new AnswerMemory();
    this.#options = options;
  }

  /** Prompt of a request as token ids. Throws `template` for what cannot be rendered. */
  promptTokens(request: ConversationRequest): Int32Array {
    return this.#render(request).tokens;
  }

  #render({ prompt }: ConversationRequest): { tokens: Int32Array; prefix: string | undefined } {
    const { tokenizer, checkpoint, id } = this.model;
    if (prompt.kind === "raw") return { tokens: this.#rawTokens(prompt.prompt), prefix: undefined };
    const digest = new PrefixDigest(id);
    const { messages, tools, thinking, responseFormat } = prompt;
    const pieces = renderConversation({
      messages,
      tools,
      thinking,
      checkpoint,
      responseFormat,
      replayAnswer: (out, message, content) => this.answers.replay(out, digest, message, content, tokenizer),
      replayCalls: (out, calls) => this.calls.replay(out, calls),
    });
    if (this.#options.log.traces) this.#options.log.trace("prompt", { text: piecesToText(pieces) });
    const prefix = pieces.at(-1)?.kind === "special" ? digest.at(pieces) : undefined;
    return { tokens: encodePieces(tokenizer, pieces), prefix };
  }

  /** Renders and checks. Throws `template`, `request` or `ApiError` (`context-overflow`). */
  prepare(request: ConversationRequest): PreparedAnswer {
    const { tokenizer, ctxTokens, defaultMaxTokens, chunkTokens } = this.model;
    checkConstraint(request, tokenizer);
    const { tokens: promptTokens, prefix } = this.#render(request);
    if (promptTokens.length >= ctxTokens) throw contextOverflow(promptTokens.length, ctxTokens);
    const random = () => crypto.getRandomValues(new BigUint64Array(1))[0];
    const sampling = { ...request.sampling, seed: request.sampling.seed ?? random() };
    resolveSampling(sampling, tokenizer.vocabSize);
    new StopMatcher(request.stopStrings);
    const openId = tokenizer.specialId(SPECIAL_TEXT.thinkStart);
    const closeId = tokenizer.specialId(SPECIAL_TEXT.thinkEnd);
    const startsThinking = openId !== undefined && promptTokens.at(-1) === openId;
    const thinking =
      request.prompt.kind === "raw" || openId === undefined || closeId === undefined
        ? undefined
        : { openId, closeId, startsOpen: startsThinking, budgetTokens: request.thinkBudgetTokens };
    const generate: PreparedAnswer["generate"] = {
      promptTokens,
      sampling,
      maxTokens: request.maxTokens ?? defaultMaxTokens,
      stopTokenIds: tokenizer.stopIds,
      thinking,
      topLogprobs: request.topLogprobs,
      cacheKey: request.cacheKey,
      constraint: request.constraint,
      chunkTokens,
    };
    return { request, generate, promptTokens: promptTokens.length, startsThinking, prefix };
  }

  /**
   * Takes a place in the line and returns the answer's events. Throws `busy` at once when too many wait; the stream
   * throws `cancelled` after an abort, and what the source throws.
   */
  start(prepared: PreparedAnswer, signal: AbortSignal): AsyncGenerator<AnswerEvent, void> {
    const ticket = this.admission.enter(signal);
    const state: RunState = { hasBegun: false, stream: undefined };
    // A stream that nobody ever reads from has no `finally` to give the place back.
    signal.addEventListener("abort", () => !state.hasBegun && ticket.leave(), { once: true });
    try {
      // At once, so that a source that refuses can still be answered with a status.
      if (ticket.isRunning) state.stream = this.model.source.generate(prepared.generate, { signal });
    } catch (error) {
      ticket.leave();
      this.#noteFault(error);
      throw error;
    }
    return this.#run(prepared, signal, ticket, state);
  }

  async *#run(
    prepared: PreparedAnswer,
    signal: AbortSignal,
    ticket: Ticket,
    state: RunState,
  ): AsyncGenerator<AnswerEvent, void> {
    state.hasBegun = true;
    const meter = this.#options.metrics.startAnswer();
    let text: AnswerText | undefined;
    try {
      await ticket.turn;
      if (signal.aborted) throw new CancelledError();
      text = this.#answerText(prepared);
      const stream = state.stream ?? this.model.source.generate(prepared.generate, { signal });
      for await (const event of stream) {
        if (event.kind === "token") meter.token();
        for (const answerEvent of text.take(event)) {
          if (answerEvent.kind === "finish") {
            // Before it is passed on: readers need not come back for more.
            meter.finish(answerEvent.usage);
            this.#noteText(text);
          }
          yield answerEvent;
        }
        if (text.isFinished) break;
      }
    } catch (error) {
      meter.fail(error);
      if (text !== undefined) this.#noteText(text);
      this.#noteFault(error);
      throw error;
    } finally {
      meter.end();
      ticket.leave();
    }
  }

  #noteText(text: AnswerText): void {
    const { metrics, log } = this.#options;
    for (const { reason, rawText } of text.malformed) {
      metrics.malformedCall(reason);
      log.line(`malformed tool call: ${reason}, ${rawText.length} characters`);
    }
    if (log.traces) log.trace("answer", { text: text.rawText });
  }

  #noteFault(error: unknown): void {
    const names = ["EngineCrashedError", "BackendFaultError"];
    if (error instanceof Error && names.includes(error.name)) this.#options.onFault(error);
  }

  #answerText(prepared: PreparedAnswer): AnswerText {
    const { tokenizer } = this.model;
    const { request, startsThinking, prefix } = prepared;
    const tools = request.prompt.kind === "chat" ? request.prompt.tools : [];
    return new AnswerText({
      parser:
        request.prompt.kind === "raw" ? undefined : createAnswerParser({ thinking: startsThinking, tools }),
      stopStrings: request.stopStrings,
      dsmlId: tokenizer.specialId(SPECIAL_TEXT.dsml),
      thinking: prepared.generate.thinking,
      keepsRawText: this.#options.log.traces,
      onWhole:
        prefix === undefined
          ? undefined
          : (answer, ids) => this.answers.remember(prefix, answer, ids, tokenizer),
      onCalls: (ids, sampled) => this.calls.remember(ids, sampled),
    });
  }

  #rawTokens(prompt: string | readonly number[]): Int32Array {
    const { tokenizer } = this.model;
    if (typeof prompt !== "string") return Int32Array.from(prompt);
    const ids = tokenizer.encode(prompt, { allowSpecial: true });
    if (ids[0] === tokenizer.bosId) return ids;
    const tokens = new Int32Array(ids.length + 1);
    tokens[0] = tokenizer.bosId;
    tokens.set(ids, 1);
    return tokens;
  }
}

function checkConstraint({ constraint, prompt }: ConversationRequest, tokenizer: Tokenizer): void {
  if (constraint === undefined) return;
  const last = prompt.kind === "chat" ? prompt.messages.at(-1) : undefined;
  if (last?.role === "assistant" && last.openEnded) {
    const reason = "an answer that is already begun cannot be held to a format or a tool choice";
    throw new ApiError("invalid-request", `messages: ${reason}`, { param: "messages" });
  }
  if (constraint.calls !== undefined && tokenizer.specialId(constraint.calls.tags.mark) === undefined) {
    const reason = "this model's vocabulary has no mark for tool calls";
    throw new ApiError("invalid-request", `tool_choice: ${reason}`, { param: "tool_choice" });
  }
}
