// Sampled tokens to the server's events: thinking and calls by the DSML parser, stop strings on visible content only, so
// that a stop string inside a call's arguments cannot cut the call.
import { CancelledError, Ds4Error } from "../core/errors.ts";
import type { AnswerParser } from "../dsml/answer-parser.ts";
import type { MalformedCall, MarkRange, ParseEvent, SampledText } from "../dsml/events.ts";
import { joinSampled } from "../dsml/replay.ts";
import type { FinishEvent, GenerateEvent, ThinkingTags, TokenEvent } from "../session/generate.ts";
import { StopMatcher } from "../session/stop-strings.ts";
import { SPECIAL_TEXT } from "../tokenizer/tokenizer-tables.ts";
import type { AnswerEvent, AnswerFinish, TokenLogprobs } from "./answer-events.ts";
import type { SeenAnswer } from "./answer-memory.ts";
import { newId } from "./conversation-request.ts";

/** What one answer's text is read with. */
export interface AnswerTextOptions {
  /** Undefined for raw completions: everything is content. */
  parser: AnswerParser | undefined;
  stopStrings: readonly string[];
  /** Id of the mark that calls are written with. */
  dsmlId: number | undefined;
  /** The tags whose text the source leaves out. */
  thinking: ThinkingTags | undefined;
  keepsRawText: boolean;
  /** Takes an answer that came to its end whole, and nothing but what the client was given. */
  onWhole?(answer: SeenAnswer, ids: Int32Array): void;
  /** Takes the ids of an answer's calls and how they were sampled, when nothing but them came after them. */
  onCalls?(ids: readonly string[], sampled: SampledText): void;
}

/** The state of one answer. */
export class AnswerText {
  /** What was call markup but no call. */
  readonly malformed: MalformedCall[] = [];
  /** Everything sampled, if it is kept. */
  rawText = "";
  isFinished = false;
  readonly #options: AnswerTextOptions;
  #stops: StopMatcher;
  #logprobs: TokenLogprobs[] = [];
  /** Ids of the started calls by index. */
  readonly #callIds: string[] = [];
  #completeCalls = 0;
  /** The calls' text so far; undefined before the first, and null once something else followed. */
  #sampledCalls: SampledText | undefined | null;
  #voidCalls = 0;
  readonly #sampledIds: number[] = [];
  #reasoning = "";
  #visible = "";
  #promptTokens = 0;
  #reusedTokens = 0;
  #prefillSeconds = 0;
  #completionTokens = 0;
  #reasoningTokens = 0;
  #decodeStart = 0;

  constructor(options: AnswerTextOptions) {
    this.#options = options;
    this.#stops = new StopMatcher(options.stopStrings);
  }

  /** Events that `event` made certain. Throws `cancelled` at the end of a cancelled answer. */
  take(event: GenerateEvent): AnswerEvent[] {
    if (event.kind === "prompt") {
      this.#promptTokens = event.promptTokens;
      this.#reusedTokens = event.reusedTokens;
      this.#prefillSeconds = event.prefillSeconds;
      this.#decodeStart = performance.now();
      return [{ kind: "prompt", reusedTokens: event.reusedTokens }];
    }
    return event.kind === "token" ? this.#token(event) : this.#finish(event);
  }

  #token(event: TokenEvent): AnswerEvent[] {
    this.#completionTokens++;
    if (event.channel === "thinking") this.#reasoningTokens++;
    if (event.logprob !== undefined) {
      this.#logprobs.push({ chosen: event.logprob, alternatives: event.alternatives ?? [] });
    }
    const { dsmlId, thinking } = this.#options;
    const { tokenId } = event;
    this.#sampledIds.push(tokenId);
    let { text } = event;
    const marks: MarkRange[] = [];
    const mark =
      tokenId === thinking?.openId
        ? SPECIAL_TEXT.thinkStart
        : tokenId === thinking?.closeId
          ? SPECIAL_TEXT.thinkEnd
          : undefined;
    if (mark !== undefined) {
      marks.push([text.length, text.length + mark.length]);
      text += mark;
    } else if (tokenId === dsmlId && text.endsWith(SPECIAL_TEXT.dsml)) {
      marks.push([text.length - SPECIAL_TEXT.dsml.length, text.length]);
    }
    return this.#push(text, marks);
  }

  #finish(event: FinishEvent): AnswerEvent[] {
    const events = this.#push(event.text, []);
    if (this.isFinished) return events;
    const reason = event.finishReason;
    if (reason === "cancelled") throw new CancelledError();
    const end = reason === "length" ? "length" : "stop";
    if (this.#options.parser !== undefined) this.#convert(this.#options.parser.finish(end), events);
    if (this.isFinished) return events;
    const rest = this.#stops.finish();
    if (rest !== "") events.push(this.#contentEvent(rest));
    if (this.#voidCalls > 0 && end === "stop") {
      // A call was already announced; only an error keeps a client from running half of it.
      throw new Ds4Error("session", "the model wrote a malformed tool call; try again");
    }
    this.#noteWhole();
    if (this.#sampledCalls) this.#options.onCalls?.(this.#callIds, this.#sampledCalls);
    const finish = end === "length" ? "length" : this.#completeCalls > 0 ? "tool-calls" : "stop";
    events.push(this.#finishEvent(finish));
    return events;
  }

  #push(text: string, marks: readonly MarkRange[]): AnswerEvent[] {
    const events: AnswerEvent[] = [];
    if (this.#options.keepsRawText) this.rawText += text;
    const { parser } = this.#options;
    this.#convert(parser === undefined ? [{ type: "content", text }] : parser.push(text, marks), events);
    return events;
  }

  #convert(parsed: readonly ParseEvent[], events: AnswerEvent[]): void {
    for (const event of parsed) {
      if (this.isFinished) return;
      this.#noteSampled(event);
      if (event.type === "content") {
        this.#content(event.text, events);
        continue;
      }
      if (event.type !== "malformedCall") this.#flushContent(events);
      this.#logprobs = [];
      switch (event.type) {
        case "reasoning":
          this.#reasoning += event.text;
          events.push({ kind: "reasoning", text: event.text });
          break;
        case "toolCallStart": {
          const id = newId("call_");
          this.#callIds[event.index] = id;
          events.push({ kind: "tool-start", index: event.index, id, name: event.name });
          break;
        }
        case "toolCallArguments":
          events.push({ kind: "tool-arguments", index: event.index, delta: event.delta });
          break;
        case "toolCallEnd": {
          this.#completeCalls++;
          const { index, name, argumentsJson } = event;
          events.push({ kind: "tool-end", index, id: this.#callIds[index], name, argumentsJson });
          break;
        }
        case "malformedCall":
          if (event.index !== undefined) this.#voidCalls++;
          this.malformed.push(event);
          break;
        case "markup":
          break;
      }
    }
  }

  #noteWhole(): void {
    const { onWhole, thinking } = this.#options;
    const isOpen = thinking?.startsOpen === true && !this.#sampledIds.includes(thinking.closeId);
    // Markup that is no call must not feed on itself, and open thinking would have to be closed first.
    if (onWhole === undefined || isOpen || this.malformed.length > 0) return;
    const answer = { reasoning: this.#reasoning, content: this.#visible, callIds: this.#callIds };
    onWhole(answer, Int32Array.from(this.#sampledIds));
  }

  #noteSampled(event: ParseEvent): void {
    if (this.#sampledCalls === null) return;
    if (event.type === "toolCallEnd" || (event.type === "markup" && this.#sampledCalls !== undefined)) {
      const before = this.#sampledCalls;
      this.#sampledCalls = before === undefined ? event : joinSampled(before, event);
    } else if (this.#sampledCalls !== undefined && !event.type.startsWith("toolCall"))
      this.#sampledCalls = null;
  }

  #content(text: string, events: AnswerEvent[]): void {
    const match = this.#stops.push(text);
    if (match.text !== "") events.push(this.#contentEvent(match.text));
    if (match.matched !== undefined) events.push(this.#finishEvent("stop-string", match.matched));
  }

  /** Text held back as a possible stop string is plain text once something else follows. */
  #flushContent(events: AnswerEvent[]): void {
    const rest = this.#stops.finish();
    if (rest !== "") events.push(this.#contentEvent(rest));
    this.#stops = new StopMatcher(this.#options.stopStrings);
  }

  #contentEvent(text: string): AnswerEvent {
    this.#visible += text;
    if (this.#logprobs.length === 0) return { kind: "content", text };
    const logprobs = this.#logprobs;
    this.#logprobs = [];
    return { kind: "content", text, logprobs };
  }

  #finishEvent(finish: AnswerFinish, stopString?: string): AnswerEvent {
    this.isFinished = true;
    const usage = {
      promptTokens: this.#promptTokens,
      reusedTokens: this.#reusedTokens,
      completionTokens: this.#completionTokens,
      reasoningTokens: this.#reasoningTokens,
      prefillSeconds: this.#prefillSeconds,
      decodeSeconds: (performance.now() - this.#decodeStart) / 1000,
    };
    return { kind: "finish", finish, stopString, usage };
  }
}
