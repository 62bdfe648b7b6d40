// What every wire turns its API's request into. Knows no API.
import { randomBytes } from "node:crypto";
import type { AnswerConstraint } from "../grammar/constraint.ts";
import type { SamplingParams } from "../session/sampling-params.ts";
import type { Message, Thinking, ToolDefinition } from "../template/conversation.ts";
import type { JsonValue } from "../template/json-python.ts";

/** Messages for the template. */
export interface ChatPromptInput {
  kind: "chat";
  messages: Message[];
  /** The tools that may be called; empty where the request forbids calls. */
  tools: ToolDefinition[];
  thinking: Thinking;
  /** Schema of the answer that the prompt shows. */
  responseFormat?: JsonValue;
}

/** Text or token ids that go to the model as they are; marks in the text become special tokens. */
export interface RawPromptInput {
  kind: "raw";
  prompt: string | readonly number[];
}

/** One answer to be made. */
export interface ConversationRequest {
  prompt: ChatPromptInput | RawPromptInput;
  /** Closes the thinking after this many tokens. */
  thinkBudgetTokens?: number;
  sampling: Partial<SamplingParams>;
  /** Default: what is left of the context. */
  maxTokens?: number;
  /** Act on visible content only. */
  stopStrings: readonly string[];
  /** Log-probabilities of content with this many alternatives; undefined for none. */
  topLogprobs?: number;
  /** Names the conversation, where the client does: a hint for the cache. */
  cacheKey?: string;
  /** What the visible answer must be. */
  constraint?: AnswerConstraint;
}

/** An unguessable id, `chatcmpl-5f…`. */
export function newId(prefix: string): string {
  return prefix + randomBytes(12).toString("hex");
}
