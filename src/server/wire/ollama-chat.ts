// POST /api/chat: Ollama's chat, one JSON object a line. Streams unless told otherwise, as Ollama does.
import { z } from "zod";
import type { Message, ToolCall } from "../../template/conversation.ts";
import type { AnswerEvent, AnswerFinish, AnswerUsage } from "../answer-events.ts";
import { type ApiError, notSupported } from "../api-error.ts";
import { MAX_MESSAGES } from "../limits.ts";
import {
  answerForm,
  type JsonFormat,
  jsonFormat,
  MAX_DEMANDED_CALLS,
  type OfferedTool,
} from "./answer-constraint.ts";
import { assistantMessage } from "./openai-chat.ts";
import { parseBody } from "./parse-body.ts";
import {
  effortField,
  effortOf,
  jsonObject,
  samplingFields,
  samplingOf,
  stopField,
  stopsOf,
  toolDefinition,
  toolsField,
} from "./request-fields.ts";
import { type AnswerStart, JSON_LINES, type WireJob } from "./wire.ts";

const messageSchema = z.looseObject({
  role: z.enum(["system", "user", "assistant", "tool"]),
  content: z.string().nullish(),
  thinking: z.string().nullish(),
  images: z.array(z.unknown()).nullish(),
  tool_calls: z
    .array(
      z.looseObject({
        id: z.string().nullish(),
        function: z.looseObject({ name: z.string(), arguments: jsonObject.nullish() }),
      }),
    )
    .nullish(),
  tool_call_id: z.string().nullish(),
});

/** The body of an Ollama chat. */
export const ollamaChatSchema = z.looseObject({
  model: z.string().nullish(),
  messages: z.array(messageSchema).min(1).max(MAX_MESSAGES),
  stream: z.boolean().nullish(),
  think: z.union([z.boolean(), effortField]).nullish(),
  tools: toolsField,
  format: z.union([z.enum(["json", ""]), jsonObject]).nullish(),
  options: z
    .looseObject({
      ...samplingFields,
      repeat_penalty: samplingFields.repetition_penalty,
      num_predict: z.int().nullish(),
      stop: stopField,
    })
    .nullish(),
});

type OllamaBody = z.output<typeof ollamaChatSchema>;

/** `{ error: "…" }`. */
export function ollamaErrorBody(error: ApiError): object {
  return { error: error.message };
}

const line = (body: object) => `${JSON.stringify(body)}\n`;

function ollamaTools(tools: OllamaBody["tools"]): OfferedTool[] {
  return (tools ?? []).flatMap(({ type, function: tool }, index) => {
    if (type !== "function" || tool === undefined) return [];
    const definition = toolDefinition(tool.name, tool.description, tool.parameters);
    return [{ definition, schemaPath: `tools[${index}].function.parameters` }];
  });
}

function ollamaFormat(format: OllamaBody["format"]): JsonFormat | undefined {
  if (format === null || format === undefined || format === "") return undefined;
  const isSchema = format !== "json";
  return jsonFormat(isSchema ? "json_schema" : "json_object", format, { type: "format", schema: "format" });
}

/** A checked Ollama chat. Throws `ApiError`. */
export function ollamaChatJob(body: unknown): WireJob {
  const parsed = parseBody(ollamaChatSchema, body);
  const { think, options } = parsed;
  const form = answerForm(
    ollamaTools(parsed.tools),
    { mode: "auto", maxCalls: MAX_DEMANDED_CALLS },
    ollamaFormat(parsed.format),
  );
  const effort = typeof think === "string" ? effortOf(think) : undefined;
  const predict = options?.num_predict ?? undefined;
  const started = performance.now();
  return {
    request: {
      prompt: {
        kind: "chat",
        messages: parsed.messages.map(messageOf),
        tools: form.tools,
        responseFormat: form.responseFormat,
        thinking: effort ?? (think === false ? "off" : "on"),
      },
      sampling: samplingOf({ ...options, repetition_penalty: options?.repeat_penalty }),
      // -1 and -2 are Ollama's "no limit" and "fill the context".
      maxTokens: predict !== undefined && predict > 0 ? predict : undefined,
      stopStrings: stopsOf(options?.stop),
      constraint: form.constraint,
    },
    isStream: parsed.stream !== false,
    frames: (events, start) => frames(events, start, started),
    failure: (error) => line(ollamaErrorBody(error)),
    answer: (answer, start) => ({
      ...head(start),
      message: {
        role: "assistant",
        content: answer.content,
        ...(answer.reasoning === "" ? {} : { thinking: answer.reasoning }),
        ...(answer.calls.length === 0 ? {} : { tool_calls: answer.calls.map(callOf) }),
      },
      ...ending(answer.finish, answer.usage, started),
    }),
    // A line without text: readers of lines know no comments.
    keepAlive: line({
      model: "",
      created_at: new Date().toISOString(),
      ...said({ content: "" }),
      done: false,
    }),
    contentType: JSON_LINES,
  };
}

function messageOf(
  message: OllamaBody["messages"][number],
  index: number,
  all: OllamaBody["messages"],
): Message {
  const content = message.content ?? "";
  if (message.images && message.images.length > 0) {
    throw notSupported(`messages[${index}].images`, "an image");
  }
  if (message.role === "tool")
    return { role: "tool", content, toolCallId: message.tool_call_id ?? undefined };
  if (message.role !== "assistant") return { role: message.role, content };
  const calls = (message.tool_calls ?? []).map((call) => ({
    id: call.id ?? undefined,
    name: call.function.name,
    arguments: (call.function.arguments ?? {}) as ToolCall["arguments"],
  }));
  return assistantMessage(
    content,
    message.thinking,
    calls,
    index === all.length - 1 ? `messages[${index}]` : undefined,
  );
}

async function* frames(
  events: AsyncIterable<AnswerEvent>,
  start: AnswerStart,
  started: number,
): AsyncGenerator<string, void> {
  const part = (message: object) => line({ ...head(start), ...said(message), done: false });
  for await (const event of events) {
    if (event.kind === "reasoning") yield part({ content: "", thinking: event.text });
    else if (event.kind === "content") yield part({ content: event.text });
    else if (event.kind === "tool-end") yield part({ content: "", tool_calls: [callOf(event)] });
    else if (event.kind === "finish") {
      yield line({ ...head(start), ...said({ content: "" }), ...ending(event.finish, event.usage, started) });
    }
  }
}

function head(start: AnswerStart): object {
  return { model: start.modelId, created_at: new Date().toISOString() };
}

function said(message: object): object {
  return { message: { role: "assistant", ...message } };
}

// Clients that keep messages as they came send the id back, and the prompt then holds what was sampled.
function callOf({ id, name, argumentsJson }: { id: string; name: string; argumentsJson: string }): object {
  return { id, function: { name, arguments: JSON.parse(argumentsJson) } };
}

function ending(finish: AnswerFinish, usage: AnswerUsage, started: number): object {
  const nanoseconds = (seconds: number) => Math.round(seconds * 1e9);
  return {
    done: true,
    done_reason: finish === "length" ? "length" : "stop",
    total_duration: nanoseconds((performance.now() - started) / 1000),
    load_duration: 0,
    prompt_eval_count: usage.promptTokens,
    prompt_eval_duration: nanoseconds(usage.prefillSeconds),
    eval_count: usage.completionTokens,
    eval_duration: nanoseconds(usage.decodeSeconds),
  };
}
