// Usage and timings as OpenAI's chat and completions report them, and log-probabilities with their texts.
import type { TokenLogprob } from "../../session/logprobs.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { AnswerFinish, AnswerUsage, TokenLogprobs } from "../answer-events.ts";
import type { ChatFinishReason, ChatLogprobs, ChatTimings, ChatUsage } from "./openai-chat-types.ts";

/** `prompt_tokens` counts reused ones too; `completion_tokens` counts reasoning too. */
export function openAiUsage(usage: AnswerUsage): ChatUsage {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.reusedTokens },
    completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  };
}

/** llama.cpp's timings, which front ends show as speed. */
export function timings(usage: AnswerUsage): ChatTimings {
  const evaluated = usage.promptTokens - usage.reusedTokens;
  const rate = (tokens: number, seconds: number) => (seconds > 0 ? tokens / seconds : 0);
  return {
    cache_n: usage.reusedTokens,
    prompt_n: evaluated,
    prompt_ms: usage.prefillSeconds * 1000,
    prompt_per_second: rate(evaluated, usage.prefillSeconds),
    predicted_n: usage.completionTokens,
    predicted_ms: usage.decodeSeconds * 1000,
    predicted_per_second: rate(usage.completionTokens, usage.decodeSeconds),
  };
}

/** OpenAI has no reason of its own for stop strings. */
export function openAiFinish(finish: AnswerFinish): ChatFinishReason {
  if (finish === "tool-calls") return "tool_calls";
  return finish === "length" ? "length" : "stop";
}

/** A token's text (U+FFFD for part of a character) and its bytes. */
export function tokenText(tokenizer: Tokenizer, tokenId: number): { token: string; bytes: number[] } {
  const bytes = tokenizer.tokenBytes(tokenId);
  return { token: new TextDecoder().decode(bytes), bytes: [...bytes] };
}

/** Entries of `logprobs.content`. */
export function chatLogprobs(tokenizer: Tokenizer, logprobs: readonly TokenLogprobs[]): ChatLogprobs {
  const entry = ({ tokenId, logprob }: TokenLogprob) => ({ ...tokenText(tokenizer, tokenId), logprob });
  return {
    content: logprobs.map(({ chosen, alternatives }) => ({
      ...entry(chosen),
      top_logprobs: alternatives.map(entry),
    })),
    refusal: null,
  };
}
