// A chat request as callers in this process write it: OpenAI's parameters, those of local servers beside them. Checked
// at run time by the server's wire, which knows ranges and limits.
import type { ChatToolCall } from "../server/wire/openai-chat-types.ts";

/** Part of a content; this model takes text only, other types are refused at run time. */
export interface ChatContentPart {
  type: string;
  text?: string;
}

/** A message's content. */
export type ChatContent = string | readonly ChatContentPart[];

/** A call of a kind that is refused at run time; here so that OpenAI's message types fit. */
export interface ForeignToolCall {
  id: string;
  type: "custom";
  custom: object;
}

/** A message of the conversation. */
export type ChatMessageParam =
  | { role: "system" | "developer" | "user"; content: ChatContent }
  | {
      role: "assistant";
      content?: ChatContent | null;
      reasoning_content?: string | null;
      tool_calls?: readonly (ChatToolCall | ForeignToolCall)[] | null;
    }
  | { role: "tool"; content: ChatContent; tool_call_id: string }
  | { role: "function"; content: string | null; name: string };

/** A function that the model may call; `parameters` is its JSON Schema. */
export interface ChatToolParam {
  type: string;
  function?: {
    name: string;
    description?: string | null;
    parameters?: { readonly [key: string]: unknown } | null;
    strict?: boolean | null;
  };
}

/** Whether and which tools are called. */
export type ChatToolChoice =
  | "auto"
  | "none"
  | "required"
  | { type: "function"; function: { name: string } }
  | { type: "custom"; custom: object }
  | { type: "allowed_tools"; allowed_tools: object };

/** Form of the answer. */
export type ChatResponseFormat =
  | { type: "text" }
  | { type: "json_object" }
  | {
      type: "json_schema";
      json_schema: {
        name: string;
        schema?: { readonly [key: string]: unknown };
        strict?: boolean | null;
        description?: string;
      };
    };

/** How hard to think; `minimal` and `low` are low, `medium` to `xhigh` are on. */
export type ReasoningEffort = "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max";

/** What to answer and how. Null is as good as absent. */
export interface ChatCompletionParams {
  messages: readonly ChatMessageParam[];
  /** Any name: answers come from the loaded model. */
  model?: string | null;
  /** Chunks as they come instead of one answer. */
  stream?: boolean | null;
  /** `include_usage`: a last chunk without choices, with usage and timings. */
  stream_options?: { include_usage?: boolean | null } | null;
  /** Most tokens of the answer, thinking included. Default: what the context has left. */
  max_completion_tokens?: number | null;
  max_tokens?: number | null;
  /** Default 1; 0 is greedy. */
  temperature?: number | null;
  top_p?: number | null;
  top_k?: number | null;
  min_p?: number | null;
  presence_penalty?: number | null;
  frequency_penalty?: number | null;
  repetition_penalty?: number | null;
  /** Start of the random sequence. Default: another one each time. */
  seed?: number | null;
  /** By token id, -100 to 100. */
  logit_bias?: { readonly [tokenId: string]: number } | null;
  /** Ends the visible text before any of these. */
  stop?: string | readonly string[] | null;
  logprobs?: boolean | null;
  top_logprobs?: number | null;
  tools?: readonly ChatToolParam[] | null;
  /** Default `auto`. What is not supported is refused, never ignored. */
  tool_choice?: ChatToolChoice | null;
  response_format?: ChatResponseFormat | null;
  reasoning_effort?: ReasoningEffort | null;
  /** Thinks at most `budget_tokens`, or not at all. */
  thinking?: { type: "enabled" | "disabled" | "adaptive" | "auto"; budget_tokens?: number | null } | null;
  /** Names the conversation: a hint for the cache. */
  prompt_cache_key?: string | null;
  /** Only 1. */
  n?: number | null;
}

/** Options of one request. */
export interface RequestOptions {
  /** Aborting it ends the answer, which then throws `cancelled`. */
  signal?: AbortSignal | null;
}
