// What the parser of a model's answer takes and gives. Knows no API: servers turn these events into their own.
import type { ToolDefinition } from "../template/conversation.ts";

/** Why an answer ended. Only `stop` means that the model was done: nothing is repaired after the other two. */
export type AnswerEnd = "stop" | "length" | "cancelled";

/**
 * Characters `[start, end)` of a pushed text, in UTF-16 units, that came from one special token (the DSML mark, a
 * think tag) and not from ordinary tokens that spell the same.
 */
export type MarkRange = readonly [start: number, end: number];

/** Text as it was sampled. */
export interface SampledText {
  rawText: string;
  /** Which of its characters came from special tokens; undefined if that is not known. */
  marks: readonly MarkRange[] | undefined;
}

/** What a parser needs to know before the first token. */
export interface AnswerParserOptions {
  /** Whether the prompt ended inside an open `<think>`. */
  thinking: boolean;
  /** The tools offered to the model; calls of other names are never started. */
  tools: readonly ToolDefinition[];
}

/** A piece of the model's thinking. */
export interface ReasoningDelta {
  type: "reasoning";
  text: string;
}

/** A piece of the visible answer. */
export interface ContentDelta {
  type: "content";
  text: string;
}

/** A call of a known tool begins. It counts only once its `toolCallEnd` has come. */
export interface ToolCallStart {
  type: "toolCallStart";
  /** 0-based, counting the started calls of this answer. */
  index: number;
  name: string;
}

/** The next fragment of the JSON text of the arguments object. */
export interface ToolCallArguments {
  type: "toolCallArguments";
  index: number;
  delta: string;
}

/**
 * A call is complete and may be executed. Its raw text goes from the end of what came before (blank line and block
 * tag included) to `</invoke>`.
 */
export interface ToolCallEnd extends SampledText {
  type: "toolCallEnd";
  index: number;
  name: string;
  /** JSON text of the arguments object: all deltas of this call joined. */
  argumentsJson: string;
  /** What was coerced, repaired or recovered, one sentence each, for logs. Empty for a call by the book. */
  notes: readonly string[];
}

/** Why something that is certainly call markup is no call. */
export type MalformedReason =
  | "unknown-tool" // a well-formed call of a tool that was not offered
  | "no-name" // an invoke tag without a name, or a parameter tag without one
  | "duplicate-parameter" // the same parameter twice in one call
  | "unexpected-text" // text where only tags may stand
  | "unexpected-tag" // a tag where it may not stand
  | "empty-block" // a block without a call
  | "unclosed" // the model stopped in the middle of a call
  | "truncated"; // the answer was cut in the middle of a call

/** Call markup that is no call. If a call had started, it is void: its `toolCallEnd` never comes. */
export interface MalformedCall extends SampledText {
  type: "malformedCall";
  /** The started call that this ends, or undefined if none had started. */
  index: number | undefined;
  reason: MalformedReason;
}

/** Sampled text that is neither shown nor a call: think tags, closing tags, the blank line before them. */
export interface Markup extends SampledText {
  type: "markup";
}

/**
 * One step of an answer. The texts of `reasoning` and `content` and the `rawText`s of the others, in order, are the
 * sampled text without loss.
 */
export type ParseEvent =
  | ReasoningDelta
  | ContentDelta
  | ToolCallStart
  | ToolCallArguments
  | ToolCallEnd
  | MalformedCall
  | Markup;
