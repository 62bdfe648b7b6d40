// What chat answers look like: the shapes of OpenAI's API, with DeepSeek's `reasoning_content` and llama.cpp's `timings`
// beside them. Types only; the same go out over HTTP and to callers in this process.

/** Why an answer ended: `stop` is a natural end or a stop string. */
export type ChatFinishReason = "stop" | "length" | "tool_calls";

/** Counts of an answer. `prompt_tokens` counts cached tokens too, `completion_tokens` reasoning too. */
export interface ChatUsage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
  completion_tokens_details: { reasoning_tokens: number };
}

/** Speed of an answer: `cache_n` tokens were reused, `prompt_n` evaluated, `predicted_n` sampled. */
export interface ChatTimings {
  cache_n: number;
  prompt_n: number;
  prompt_ms: number;
  prompt_per_second: number;
  predicted_n: number;
  predicted_ms: number;
  predicted_per_second: number;
}

/** A token's text (U+FFFD for part of a character), its bytes and natural log-probability. */
export interface ChatTokenLogprob {
  token: string;
  bytes: number[];
  logprob: number;
}

/** Log-probabilities of the content's tokens, each with its alternatives. */
export interface ChatLogprobs {
  content: (ChatTokenLogprob & { top_logprobs: ChatTokenLogprob[] })[];
  refusal: null;
}

/** A complete call; `arguments` is JSON text of an object. */
export interface ChatToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

/** The model's message. Send it back as it is for the next turn. */
export interface ChatAnswerMessage {
  role: "assistant";
  /** Null when the answer is calls or reasoning only. */
  content: string | null;
  refusal: null;
  reasoning_content?: string;
  tool_calls?: ChatToolCall[];
}

/** A whole answer. */
export interface ChatCompletion {
  id: string;
  object: "chat.completion";
  /** Seconds since 1970. */
  created: number;
  model: string;
  choices: {
    index: number;
    message: ChatAnswerMessage;
    logprobs: ChatLogprobs | null;
    finish_reason: ChatFinishReason;
  }[];
  usage: ChatUsage;
  timings: ChatTimings;
}

/** Part of a call: the first of an `index` has id and name, later ones continue `arguments`. */
export interface ChatToolCallDelta {
  index: number;
  id?: string;
  type?: "function";
  function?: { name?: string; arguments?: string };
}

/** What a chunk adds. */
export interface ChatDelta {
  role?: "assistant";
  content?: string;
  reasoning_content?: string;
  tool_calls?: ChatToolCallDelta[];
}

/** A step of a streamed answer. With `include_usage` the last one has no choices, but usage and timings. */
export interface ChatCompletionChunk {
  id: string;
  object: "chat.completion.chunk";
  created: number;
  model: string;
  choices: {
    index: number;
    delta: ChatDelta;
    logprobs: ChatLogprobs | null;
    finish_reason: ChatFinishReason | null;
  }[];
  usage?: ChatUsage | null;
  timings?: ChatTimings;
}
