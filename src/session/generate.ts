// Turns a prompt of token ids into a stream of events: prefill, sample, detokenize, stop. Synchronous, so that it
// can run in a worker; cancellation is a flag looked at between tokens and between chunks.
//
// Text is split into thinking and content by the ids of the think tags, never by their text. Thinking that
// the model does not close stays thinking, whatever ends the answer. Stop strings apply to content only.
import { CancelledError, Ds4Error } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import type { AnswerConstraint } from "../grammar/constraint.ts";
import type { TokenConstraint } from "../grammar/token-constraint.ts";
import { Answer, logprobsOf } from "./answer.ts";
import type { TokenLogprob } from "./logprobs.ts";
import { Sampler } from "./sampler.ts";
import type { SamplingParams } from "./sampling-params.ts";
import type { CancelSignal, Session } from "./session.ts";
import { ContextFullError } from "./session-errors.ts";

/** Turns tokens into text, holding back incomplete UTF-8. */
export interface TokenDecoder {
  push(tokenId: number): string;
  /** What is still held back; the decoder then starts afresh. */
  end(): string;
}

/** How thinking is recognised. */
export interface ThinkingTags {
  openId: number;
  closeId: number;
  /** The prompt ended inside an open think tag. */
  startsOpen: boolean;
  /** Closes thinking by force after this many thinking tokens. Default: never. */
  budgetTokens?: number;
}

/** What to generate. Plain data: it can be sent to another thread. */
export interface GenerateRequest {
  /** The whole timeline, not only its new part: the session finds what it can reuse. */
  promptTokens: Int32Array;
  sampling?: Partial<SamplingParams>;
  /** Default and upper bound: what the context has left. */
  maxTokens?: number;
  /** Tokens that end the answer; never output. */
  stopTokenIds: readonly number[];
  stopStrings?: readonly string[];
  thinking?: ThinkingTags;
  /** Report log-probabilities with this many alternatives; 0 reports only the chosen token's. */
  topLogprobs?: number;
  chunkTokens?: number;
  /** What the content must be; thinking is free. Log-probabilities stay those of the model without it. */
  constraint?: AnswerConstraint;
}

/** Makes the constraint of one answer from its description. Throws `request` when it cannot be enforced. */
export type OpenConstraint = (constraint: AnswerConstraint) => TokenConstraint;

/** The constraint of `request`, if it has one. Throws `request` where none can be kept or it is not valid. */
export function constraintOf(
  request: GenerateRequest,
  open: OpenConstraint | undefined,
): TokenConstraint | undefined {
  if (request.constraint === undefined) return undefined;
  if (open !== undefined) return open(request.constraint);
  throw new Ds4Error("request", "constraint: this engine was opened without a tokenizer and keeps none");
}

/** Which part of the answer text belongs to. */
export type Channel = "thinking" | "content";

/** The prompt is evaluated. */
export interface PromptEvent {
  kind: "prompt";
  promptTokens: number;
  reusedTokens: number;
  prefillSeconds: number;
}

/** One sampled token. `text` may be empty (held back, a think tag) or hold more than this token's. */
export interface TokenEvent {
  kind: "token";
  tokenId: number;
  channel: Channel;
  text: string;
  logprob?: TokenLogprob;
  alternatives?: TokenLogprob[];
}

/** Why an answer ended. */
export type FinishReason = "stop" | "stop-string" | "length" | "cancelled";

/** The last event. */
export interface FinishEvent {
  kind: "finish";
  finishReason: FinishReason;
  /** The stop string found, if that was the reason. */
  stopString?: string;
  /** The stop token sampled, if that was the reason. */
  stopTokenId?: number;
  /** Text held back until now. */
  text: string;
  channel: Channel;
  promptTokens: number;
  reusedTokens: number;
  /** Sampled tokens, thinking included, the stop token not. */
  completionTokens: number;
  thinkingTokens: number;
  prefillSeconds: number;
  decodeSeconds: number;
}

/** One step of an answer. */
export type GenerateEvent = PromptEvent | TokenEvent | FinishEvent;

/** What a generation runs on. */
export interface GenerateContext {
  session: Session;
  decoder: TokenDecoder;
  openConstraint?: OpenConstraint;
  signal?: CancelSignal;
  onProgress?: ProgressListener;
}

const seconds = (sinceMs: number) => (performance.now() - sinceMs) / 1000;

/**
 * Yields one `prompt` event, then `token` events, then one `finish` event. Cancellation is not an error: the
 * answer ends with reason `cancelled` and the session keeps what was evaluated. Throws `context-full` when the
 * prompt leaves no room for one token, `request` on bad parameters, and what the session throws.
 */
export function* generate(
  context: GenerateContext,
  request: GenerateRequest,
): Generator<GenerateEvent, void> {
  const { session, signal } = context;
  const promptTokens = request.promptTokens.length;
  const room = session.capacityTokens - promptTokens;
  if (room < 1) {
    const hint = "no room is left for an answer: shorten the prompt or use a larger context";
    throw new ContextFullError(0, promptTokens, session.capacityTokens, hint);
  }
  const sampler = new Sampler(request.sampling ?? {}, session.vocabSize);
  const answer = new Answer(context.decoder, request);
  const constraint = constraintOf(request, context.openConstraint);
  const prefillStart = performance.now();
  let reusedTokens = 0;
  const finish = (reason: FinishReason, decodeSeconds: number, prefillSeconds: number): FinishEvent => ({
    ...answer.finish(reason),
    promptTokens,
    reusedTokens,
    prefillSeconds,
    decodeSeconds,
  });
  try {
    const { chunkTokens } = request;
    const { onProgress } = context;
    reusedTokens = session.sync(request.promptTokens, { chunkTokens, signal, onProgress }).reusedTokens;
  } catch (error) {
    if (!(error instanceof CancelledError)) throw error;
    yield finish("cancelled", 0, seconds(prefillStart));
    return;
  }
  const prefillSeconds = seconds(prefillStart);
  yield { kind: "prompt", promptTokens, reusedTokens, prefillSeconds };

  const decodeStart = performance.now();
  const maxTokens = Math.min(request.maxTokens ?? room, room);
  let reason: FinishReason | undefined = maxTokens < 1 ? "length" : undefined;
  while (reason === undefined) {
    if (signal?.aborted) {
      reason = "cancelled";
      break;
    }
    const mask = constraint?.mask(answer.isThinking);
    const tokenId =
      answer.forcedToken() ?? sampler.sample(session.candidates, session.tokens, promptTokens, mask);
    if (request.stopTokenIds.includes(tokenId)) {
      answer.stopTokenId = tokenId;
      reason = "stop";
      break;
    }
    if (!answer.isThinking) constraint?.accept(tokenId);
    yield answer.take(tokenId, logprobsOf(session.candidates, tokenId, request.topLogprobs));
    if (answer.stopString !== undefined) reason = "stop-string";
    else if (answer.completionTokens >= maxTokens) reason = "length";
    else session.step(tokenId, sampler.logitsWanted);
  }
  yield finish(reason, seconds(decodeStart), prefillSeconds);
}
