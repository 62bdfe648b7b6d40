// OpenAI's Responses request to the internal one: input items to messages, its tools, the stored conversation before it.
import { z } from "zod";
import type { Message, ToolCall } from "../../template/conversation.ts";
import { ApiError, notSupported } from "../api-error.ts";
import type { ConversationRequest } from "../conversation-request.ts";
import { MAX_CACHE_KEY_UNITS, MAX_MESSAGES, MAX_TOOLS } from "../limits.ts";
import { answerForm, jsonFormat, type OfferedTool, openAiToolChoice } from "./answer-constraint.ts";
import { assistantMessage } from "./openai-chat.ts";
import { parseBody } from "./parse-body.ts";
import {
  contentSchema,
  jsonObject,
  maxTokensField,
  samplingFields,
  samplingOf,
  textParts,
  thinkingFields,
  thinkingOf,
  toolDefinition,
} from "./request-fields.ts";
import { thinkingOfSignature } from "./thinking-signature.ts";

const itemSchema = z.looseObject({
  type: z.string().nullish(),
  role: z.string().nullish(),
  content: contentSchema,
  summary: z.array(z.looseObject({ text: z.string().nullish() })).nullish(),
  encrypted_content: z.string().nullish(),
  call_id: z.string().nullish(),
  name: z.string().nullish(),
  arguments: z.string().nullish(),
  output: contentSchema,
});

/** The body of a responses request. */
export const responsesRequestSchema = z.looseObject({
  model: z.string().nullish(),
  input: z.union([z.string(), z.array(itemSchema).max(MAX_MESSAGES)]).nullish(),
  instructions: z.string().nullish(),
  previous_response_id: z.string().nullish(),
  conversation: z.unknown().optional(),
  store: z.boolean().nullish(),
  background: z.boolean().nullish(),
  stream: z.boolean().nullish(),
  max_output_tokens: maxTokensField,
  tools: z
    .array(
      z.looseObject({
        type: z.string(),
        name: z.string().nullish(),
        description: z.string().nullish(),
        parameters: jsonObject.nullish(),
      }),
    )
    .max(MAX_TOOLS)
    .nullish(),
  tool_choice: z.union([z.string(), z.looseObject({ type: z.string() })]).nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  text: z
    .looseObject({ format: z.looseObject({ type: z.string(), schema: jsonObject.nullish() }).nullish() })
    .nullish(),
  include: z.array(z.string()).nullish(),
  metadata: z.looseObject({}).nullish(),
  prompt_cache_key: z.string().nullish(),
  ...samplingFields,
  ...thinkingFields,
});

/** A checked body. */
export type ResponsesBody = z.output<typeof responsesRequestSchema>;
type Item = z.output<typeof itemSchema>;

/** Checks. Throws `ApiError` for what would have to be ignored. */
export function parseResponsesBody(body: unknown): ResponsesBody {
  const parsed = parseBody(responsesRequestSchema, body);
  if (parsed.background) throw notSupported("background", "answering in the background");
  if (parsed.conversation !== undefined && parsed.conversation !== null) {
    throw notSupported("conversation", "a stored conversation; previous_response_id is what works, it");
  }
  return parsed;
}

/** The request, and the conversation without instructions for the store. `history` is what came before. */
export function responsesRequest(
  body: ResponsesBody,
  history: readonly Message[],
): { request: ConversationRequest; messages: Message[] } {
  const messages = [...history, ...inputMessages(body.input, history)];
  const { format } = body.text ?? {};
  const form = answerForm(
    toolsOf(body),
    openAiToolChoice(body.tool_choice, body.parallel_tool_calls, ({ name }) => name),
    jsonFormat(format?.type, format?.schema, { type: "text.format", schema: "text.format.schema" }),
  );
  const instructions: Message[] = body.instructions ? [{ role: "system", content: body.instructions }] : [];
  return {
    messages,
    request: {
      prompt: {
        kind: "chat",
        messages: [...instructions, ...messages],
        tools: form.tools,
        responseFormat: form.responseFormat,
        thinking: thinkingOf(body, "on"),
      },
      sampling: samplingOf(body),
      maxTokens: body.max_output_tokens ?? undefined,
      cacheKey: body.prompt_cache_key?.slice(0, MAX_CACHE_KEY_UNITS),
      stopStrings: [],
      constraint: form.constraint,
    },
  };
}

// Tools of other types run on OpenAI's servers or have a grammar of their own: they are not offered to the model.
function toolsOf({ tools }: ResponsesBody): OfferedTool[] {
  return (tools ?? []).flatMap(({ type, name, description, parameters }, index) => {
    if (type !== "function" || !name) return [];
    const definition = toolDefinition(name, description, parameters);
    return [{ definition, schemaPath: `tools[${index}].parameters` }];
  });
}

// An empty input is what one client warms a server up with.
function inputMessages(input: ResponsesBody["input"], history: readonly Message[]): Message[] {
  if (input === null || input === undefined || input.length === 0) return [{ role: "user", content: "" }];
  if (typeof input === "string") return [{ role: "user", content: input }];
  const calls = history.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  const reader = new ItemReader(input.length - 1, new Set(calls.map(({ id }) => id)));
  input.forEach((item, index) => {
    reader.read(item, index);
  });
  return reader.finish();
}

/** Puts the items of one assistant turn (reasoning, text, calls) together again. */
class ItemReader {
  readonly #messages: Message[] = [];
  readonly #lastIndex: number;
  readonly #callIds: Set<string | undefined>;
  #turn: { content: string; reasoning: string; calls: ToolCall[]; lastIndex: number } | undefined;

  /** `callIds` are those of the calls that came before. */
  constructor(lastIndex: number, callIds: Set<string | undefined>) {
    this.#lastIndex = lastIndex;
    this.#callIds = callIds;
  }

  read(item: Item, index: number): void {
    const path = `input[${index}]`;
    const type = item.type ?? (item.role ? "message" : "undefined");
    switch (type) {
      case "message":
        this.#message(item, index, path);
        return;
      case "reasoning": {
        const turn = this.#turn;
        if (turn !== undefined && (turn.content !== "" || turn.calls.length > 0)) this.#endTurn();
        this.#assistant(index).reasoning += reasoningOf(item);
        return;
      }
      case "function_call": {
        if (!item.name) throw wrongItem(`${path}.name`, "expected a function's name");
        const call = {
          id: item.call_id ?? undefined,
          name: item.name,
          arguments: item.arguments ?? undefined,
        };
        this.#assistant(index).calls.push(call);
        this.#callIds.add(call.id);
        return;
      }
      case "function_call_output": {
        if (!this.#callIds.has(item.call_id ?? undefined)) {
          throw wrongItem(`${path}.call_id`, `no function_call ${JSON.stringify(item.call_id)} comes before`);
        }
        this.#endTurn();
        const content = textParts(item.output, ["input_text", "output_text", "text"], `${path}.output`);
        this.#messages.push({ role: "tool", content, toolCallId: item.call_id ?? undefined });
        return;
      }
      default:
        throw wrongItem(`${path}.type`, `input items of type ${JSON.stringify(type)} are not supported`);
    }
  }

  finish(): Message[] {
    this.#endTurn();
    return this.#messages;
  }

  #message(item: Item, index: number, path: string): void {
    const content = textParts(
      item.content,
      ["input_text", "output_text", "text", "refusal"],
      `${path}.content`,
    );
    if (item.role === "assistant") {
      const turn = this.#assistant(index);
      turn.content += typeof content === "string" ? content : content.map((part) => part.text).join("");
      return;
    }
    this.#endTurn();
    if (item.role === "user") this.#messages.push({ role: "user", content });
    else if (item.role === "system" || item.role === "developer")
      this.#messages.push({ role: "system", content });
    else {
      const expected = "expected user, assistant, system or developer";
      throw wrongItem(`${path}.role`, `${expected}, got ${JSON.stringify(item.role)}`);
    }
  }

  #assistant(index: number) {
    this.#turn ??= { content: "", reasoning: "", calls: [], lastIndex: index };
    this.#turn.lastIndex = index;
    return this.#turn;
  }

  #endTurn(): void {
    if (this.#turn === undefined) return;
    const { content, reasoning, calls, lastIndex } = this.#turn;
    this.#turn = undefined;
    const lastPath = lastIndex === this.#lastIndex ? `input[${lastIndex}]` : undefined;
    this.#messages.push(assistantMessage(content, reasoning, calls, lastPath));
  }
}

function reasoningOf(item: Item): string {
  const parts = Array.isArray(item.content) ? item.content : [];
  const text = parts.map((part) => part.text ?? "").join("");
  if (text !== "") return text;
  const carried = thinkingOfSignature(item.encrypted_content);
  return carried !== "" ? carried : (item.summary ?? []).map((part) => part.text ?? "").join("\n\n");
}

function wrongItem(param: string, reason: string): ApiError {
  return new ApiError("invalid-request", `${param}: ${reason}`, { param });
}
