// POST /v1/chat/completions. Reasoning goes out as `reasoning_content`, DeepSeek's own field, and is accepted back under
// it and under `reasoning`.
import { z } from "zod";
import type { AssistantMessage, Message, ToolCall } from "../../template/conversation.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { AnswerEvent, CollectedAnswer } from "../answer-events.ts";
import { ApiError, notSupported } from "../api-error.ts";
import { MAX_CACHE_KEY_UNITS, MAX_MESSAGES } from "../limits.ts";
import { answerForm, type OfferedTool, openAiToolChoice, responseFormat } from "./answer-constraint.ts";
import { ChatShapes } from "./openai-chat-shapes.ts";
import type { ChatCompletion, ChatCompletionChunk } from "./openai-chat-types.ts";
import { openAiErrorBody } from "./openai-errors.ts";
import { parseBody } from "./parse-body.ts";
import {
  contentSchema,
  jsonObject,
  maxTokensField,
  responseFormatField,
  samplingFields,
  samplingOf,
  stopField,
  stopsOf,
  textParts,
  thinkingFields,
  thinkingOf,
  toolDefinition,
  toolsField,
} from "./request-fields.ts";
import { type AnswerStart, COMMENT, dataEvent, EVENT_STREAM, type WireJob } from "./wire.ts";

const toolCallSchema = z.looseObject({
  id: z.string().nullish(),
  function: z.looseObject({
    name: z.string(),
    arguments: z.union([z.string(), jsonObject]).nullish(),
  }),
});

const messageSchema = z.looseObject({
  role: z.enum(["system", "developer", "user", "assistant", "tool", "function"]),
  content: contentSchema,
  reasoning_content: z.string().nullish(),
  reasoning: z.string().nullish(),
  tool_calls: z.array(toolCallSchema).nullish(),
  tool_call_id: z.string().nullish(),
});

/** The body of a chat request. */
export const chatRequestSchema = z.looseObject({
  model: z.string().nullish(),
  messages: z.array(messageSchema).min(1).max(MAX_MESSAGES),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: maxTokensField,
  max_completion_tokens: maxTokensField,
  n: z.int().min(1).nullish(),
  stop: stopField,
  logprobs: z.boolean().nullish(),
  top_logprobs: z.int().min(0).max(20).nullish(),
  tools: toolsField,
  tool_choice: z.union([z.string(), z.looseObject({ type: z.string() })]).nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  response_format: responseFormatField,
  functions: z.array(z.unknown()).nullish(),
  prompt_cache_key: z.string().nullish(),
  ...samplingFields,
  ...thinkingFields,
});

type ChatBody = z.output<typeof chatRequestSchema>;

/** A chat request; `chunks` are its stream's objects for callers in this process. */
export interface ChatJob extends WireJob {
  chunks(events: AsyncIterable<AnswerEvent>, start: AnswerStart): AsyncGenerator<ChatCompletionChunk, void>;
  answer(answer: CollectedAnswer, start: AnswerStart): ChatCompletion;
}

/** A checked chat request. Throws `ApiError`. */
export function chatJob(body: unknown, tokenizer: Tokenizer): ChatJob {
  const parsed = parseBody(chatRequestSchema, body);
  if ((parsed.n ?? 1) > 1) throw notSupported("n", "more than one choice");
  if (parsed.functions && parsed.functions.length > 0) {
    throw notSupported("functions", "the old form of tools; send them as tools, it");
  }
  const { response_format: format, tool_choice: choice } = parsed;
  const form = answerForm(
    chatTools(parsed),
    openAiToolChoice(choice, parsed.parallel_tool_calls, functionName),
    responseFormat(format),
  );
  const shapes = new ChatShapes({
    includesUsage: parsed.stream_options?.include_usage === true,
    wantsLogprobs: parsed.logprobs === true,
    tokenizer,
  });
  return {
    request: {
      prompt: {
        kind: "chat",
        messages: chatMessages(parsed.messages),
        tools: form.tools,
        responseFormat: form.responseFormat,
        thinking: thinkingOf(parsed, "on"),
      },
      thinkBudgetTokens: parsed.thinking?.budget_tokens ?? undefined,
      sampling: samplingOf(parsed),
      maxTokens: parsed.max_completion_tokens ?? parsed.max_tokens ?? undefined,
      stopStrings: stopsOf(parsed.stop),
      cacheKey: parsed.prompt_cache_key?.slice(0, MAX_CACHE_KEY_UNITS),
      topLogprobs: parsed.logprobs ? (parsed.top_logprobs ?? 0) : undefined,
      constraint: form.constraint,
    },
    isStream: parsed.stream === true,
    chunks: (events, start) => shapes.chunks(events, start),
    async *frames(events, start) {
      for await (const chunk of shapes.chunks(events, start)) yield dataEvent(chunk);
      yield "data: [DONE]\n\n";
    },
    failure: (error) => dataEvent(openAiErrorBody(error)),
    answer: (answer, start) => shapes.answer(answer, start),
    keepAlive: COMMENT,
    contentType: EVENT_STREAM,
  };
}

function functionName(entry: { readonly [key: string]: unknown }): unknown {
  return (entry.function as { name?: unknown } | null | undefined)?.name;
}

function chatTools({ tools }: ChatBody): OfferedTool[] {
  return (tools ?? []).flatMap((tool, index) => {
    if (tool.type !== "function") return [];
    if (tool.function === undefined) {
      const param = `tools[${index}].function`;
      throw new ApiError("invalid-request", `${param}: expected an object, got undefined`, { param });
    }
    const { name, description, parameters } = tool.function;
    const schemaPath = `tools[${index}].function.parameters`;
    return [{ definition: toolDefinition(name, description, parameters), schemaPath }];
  });
}

function chatMessages(messages: ChatBody["messages"]): Message[] {
  const partTypes = ["text", "input_text", "refusal"];
  return messages.map((message, index): Message => {
    const path = `messages[${index}]`;
    const content = textParts(message.content, partTypes, `${path}.content`);
    if (message.role === "user") return { role: "user", content };
    if (message.role === "tool" || message.role === "function") {
      return { role: "tool", content, toolCallId: message.tool_call_id ?? undefined };
    }
    if (message.role !== "assistant") return { role: "system", content };
    const calls = (message.tool_calls ?? []).map((call) => ({
      id: call.id ?? undefined,
      name: call.function.name,
      arguments: (call.function.arguments ?? undefined) as ToolCall["arguments"],
    }));
    const lastPath = index === messages.length - 1 ? path : undefined;
    return assistantMessage(content, message.reasoning_content ?? message.reasoning, calls, lastPath);
  });
}

/**
 * An assistant's message. As the last message (`lastPath` is its path) it is the beginning of the answer, which the
 * model goes on writing. Throws when it ends in calls: their results must follow.
 */
export function assistantMessage(
  content: AssistantMessage["content"],
  reasoning: string | null | undefined,
  toolCalls: ToolCall[],
  lastPath: string | undefined,
): AssistantMessage {
  if (lastPath !== undefined && toolCalls.length > 0) {
    throw new ApiError("invalid-request", `${lastPath}: the results of its tool calls must follow`, {
      param: lastPath,
    });
  }
  return { role: "assistant", content, reasoning, toolCalls, openEnded: lastPath !== undefined };
}
