// One request on its way: waiting, reading its prompt, answering. Knows nothing of other requests.
import type { Backend, TopLogits } from "../backend/backend.ts";
import type { TokenConstraint } from "../grammar/token-constraint.ts";
import { Answer, logprobsOf } from "../session/answer.ts";
import {
  constraintOf,
  type FinishReason,
  type OpenConstraint,
  type TokenDecoder,
} from "../session/generate.ts";
import { Sampler } from "../session/sampler.ts";
import type {
  ReuseSource,
  ScheduledEvent,
  ScheduledFinishEvent,
  ScheduledPromptEvent,
  ScheduledRequest,
  SchedulingFacts,
} from "./scheduler-types.ts";
import type { Slot } from "./slot.ts";

/** What the scheduler looks at between steps; shared memory in the engine, plain objects in tests. */
export interface JobControl {
  readonly cancelled: boolean;
  /** Events that the reader took, modulo 2^32. */
  readonly consumedEvents: number;
}

/** A request as it arrives. */
export interface JobOptions {
  id: number;
  request: ScheduledRequest;
  control: JobControl;
  nowMs: number;
}

/** See the file's head. */
export class Job {
  readonly id: number;
  readonly request: ScheduledRequest;
  readonly control: JobControl;
  state: "queued" | "loading" | "prefill" | "decode" = "queued";
  slot: Slot | undefined;
  reusedTokens = 0;
  reusedFrom: ReuseSource = "none";
  /** Forgets a saved state that this job was restored from and that no forward call has proved yet. */
  dropRestored: (() => void) | undefined;
  /** Sampled, to be evaluated by the next step. */
  nextToken = -1;
  outbox: ScheduledEvent[] = [];
  readonly arrivedMs: number;
  #admittedMs: number | undefined;
  #promptDoneMs: number | undefined;
  #lastTokenMs: number | undefined;
  #sentEvents = 0;
  readonly #sampler: Sampler;
  readonly #answer: Answer;
  readonly #constraint: TokenConstraint | undefined;
  readonly #maxTokens: number;

  /** Throws `request` on wrong parameters and constraints. */
  constructor(
    { id, request, control, nowMs }: JobOptions,
    ctxTokens: number,
    backend: Backend,
    decoder: TokenDecoder,
    openConstraint?: OpenConstraint,
  ) {
    this.id = id;
    this.request = request;
    this.control = control;
    this.arrivedMs = nowMs;
    this.#sampler = new Sampler(request.sampling ?? {}, backend.spec.vocabSize);
    this.#answer = new Answer(decoder, request);
    this.#constraint = constraintOf(request, openConstraint);
    const room = ctxTokens - request.promptTokens.length;
    this.#maxTokens = Math.min(request.maxTokens ?? room, room);
  }

  get promptTokens(): Int32Array {
    return this.request.promptTokens;
  }

  get completionTokens(): number {
    return this.#answer.completionTokens;
  }

  /** Seconds since arrival at the first token, or since the token before; undefined before any. */
  tokenGapSeconds: number | undefined;
  /** Whether `tokenGapSeconds` is the wait for the first token. */
  get isFirstToken(): boolean {
    return this.completionTokens === 1;
  }

  admitted(slot: Slot, nowMs: number): void {
    this.slot = slot;
    this.#admittedMs ??= nowMs;
  }

  /** What to ask the backend for after a decoded token. */
  get logitsWanted(): "top" | "last" {
    return this.#sampler.logitsWanted;
  }

  /** Whether the reader is too far behind for another event. */
  isPaused(windowEvents: number): boolean {
    return (this.#sentEvents - this.control.consumedEvents) >>> 0 >= windowEvents;
  }

  /** The prompt is evaluated: reports it. */
  promptDone(nowMs: number): void {
    this.#promptDoneMs = nowMs;
    this.state = "decode";
    const event: ScheduledPromptEvent = {
      kind: "prompt",
      promptTokens: this.promptTokens.length,
      prefillSeconds: this.#prefillSeconds(nowMs),
      reusedTokens: this.reusedTokens,
      ...this.#facts(nowMs),
    };
    this.#emit(event);
  }

  /**
   * Samples the next token from `logits` (a row, or its candidates) and reports it; `tokens` is the timeline. Returns why
   * the answer ended, or undefined when `nextToken` is to be evaluated. Throws `session` on damaged logits, `request` when
   * the constraint is too ambiguous to follow.
   */
  advance(logits: Float32Array | TopLogits, tokens: Int32Array, nowMs: number): FinishReason | undefined {
    const answer = this.#answer;
    if (this.#maxTokens < 1) return "length";
    const mask = this.#constraint?.mask(answer.isThinking);
    const forced = answer.forcedToken();
    const tokenId = forced ?? this.#sampler.sample(logits, tokens, this.promptTokens.length, mask);
    if (this.request.stopTokenIds.includes(tokenId)) {
      answer.stopTokenId = tokenId;
      return "stop";
    }
    if (!answer.isThinking) this.#constraint?.accept(tokenId);
    this.#emit(answer.take(tokenId, logprobsOf(logits, tokenId, this.request.topLogprobs)));
    this.tokenGapSeconds = (nowMs - (this.#lastTokenMs ?? this.arrivedMs)) / 1000;
    this.#lastTokenMs = nowMs;
    this.nextToken = tokenId;
    if (answer.stopString !== undefined) return "stop-string";
    return answer.completionTokens >= this.#maxTokens ? "length" : undefined;
  }

  /** Adds the last event. */
  finish(reason: FinishReason, nowMs: number): void {
    const done = this.#promptDoneMs;
    const event: ScheduledFinishEvent = {
      ...this.#answer.finish(reason),
      promptTokens: this.promptTokens.length,
      reusedTokens: this.reusedTokens,
      prefillSeconds: this.#prefillSeconds(done ?? nowMs),
      decodeSeconds: done === undefined ? 0 : (nowMs - done) / 1000,
      ...this.#facts(nowMs),
    };
    this.#emit(event);
  }

  /** Takes the events that are to be sent. */
  takeEvents(): ScheduledEvent[] {
    const events = this.outbox;
    this.outbox = [];
    return events;
  }

  #emit(event: ScheduledEvent): void {
    this.outbox.push(event);
    this.#sentEvents++;
  }

  #prefillSeconds(nowMs: number): number {
    return this.#admittedMs === undefined ? 0 : (nowMs - this.#admittedMs) / 1000;
  }

  #facts(nowMs: number): SchedulingFacts {
    const queueSeconds = ((this.#admittedMs ?? nowMs) - this.arrivedMs) / 1000;
    return { reusedFrom: this.reusedFrom, queueSeconds, slot: this.slot?.index ?? -1 };
  }
}
