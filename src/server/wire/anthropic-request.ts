// Anthropic's messages request to the internal one: blocks to messages, its thinking settings, its tools.
import { z } from "zod";
import type { ContentPart, Message, Thinking, ToolCall } from "../../template/conversation.ts";
import { ApiError } from "../api-error.ts";
import type { ConversationRequest } from "../conversation-request.ts";
import { MAX_MESSAGES, MAX_TOOLS } from "../limits.ts";
import { answerForm, anthropicToolChoice, jsonFormat, type OfferedTool } from "./answer-constraint.ts";
import { assistantMessage } from "./openai-chat.ts";
import {
  effortField,
  effortOf,
  jsonObject,
  maxTokensField,
  samplingFields,
  samplingOf,
  toolDefinition,
} from "./request-fields.ts";
import { thinkingOfSignature } from "./thinking-signature.ts";

const blockSchema = z.looseObject({
  type: z.string(),
  text: z.string().nullish(),
  thinking: z.string().nullish(),
  signature: z.string().nullish(),
  id: z.string().nullish(),
  name: z.string().nullish(),
  input: jsonObject.nullish(),
  tool_use_id: z.string().nullish(),
  content: z
    .union([z.string(), z.array(z.looseObject({ type: z.string(), text: z.string().nullish() }))])
    .nullish(),
});
const contentSchema = z.union([z.string(), z.array(blockSchema)]);

/** The body of a messages request, and of count_tokens. */
export const messagesRequestSchema = z.looseObject({
  model: z.string().nullish(),
  max_tokens: maxTokensField,
  messages: z
    .array(z.looseObject({ role: z.enum(["user", "assistant", "system"]), content: contentSchema }))
    .min(1)
    .max(MAX_MESSAGES),
  system: z.union([z.string(), z.array(z.looseObject({ type: z.string(), text: z.string() }))]).nullish(),
  stream: z.boolean().nullish(),
  stop_sequences: z.array(z.string()).nullish(),
  // Anthropic's own range: what goes further was meant for another API.
  temperature: z.number().min(0).max(1).nullish(),
  top_p: samplingFields.top_p,
  top_k: samplingFields.top_k,
  tools: z
    .array(
      z.looseObject({
        type: z.string().nullish(),
        name: z.string().min(1),
        description: z.string().nullish(),
        input_schema: jsonObject.nullish(),
        defer_loading: z.boolean().nullish(),
      }),
    )
    .max(MAX_TOOLS)
    .nullish(),
  tool_choice: z
    .looseObject({
      type: z.enum(["auto", "any", "tool", "none"]),
      name: z.string().nullish(),
      disable_parallel_tool_use: z.boolean().nullish(),
    })
    .nullish(),
  thinking: z
    .looseObject({
      type: z.enum(["enabled", "disabled", "adaptive"]),
      budget_tokens: z.int().min(1).nullish(),
      display: z.string().nullish(),
    })
    .nullish(),
  output_config: z
    .looseObject({
      effort: effortField,
      format: z.looseObject({ type: z.string(), schema: jsonObject.nullish() }).nullish(),
    })
    .nullish(),
});

/** A checked body. */
export type MessagesBody = z.output<typeof messagesRequestSchema>;
type Block = z.output<typeof blockSchema>;

/** One client puts a line that changes with every request before its system text; it is no instruction. */
const BILLING_HEADER = /^\s*x-anthropic-billing-header:/i;

/** Throws `ApiError` for what would have to be ignored. */
export function messagesRequest(body: MessagesBody): ConversationRequest {
  const { format } = body.output_config ?? {};
  const form = answerForm(
    toolsOf(body.tools ?? []),
    anthropicToolChoice(body.tool_choice),
    jsonFormat(format?.type, format?.schema, {
      type: "output_config.format",
      schema: "output_config.format.schema",
    }),
  );
  return {
    prompt: {
      kind: "chat",
      messages: [...systemMessages(body.system), ...body.messages.flatMap(messagesOf)],
      tools: form.tools,
      responseFormat: form.responseFormat,
      thinking: thinkingOf(body),
    },
    thinkBudgetTokens: body.thinking?.budget_tokens ?? undefined,
    sampling: samplingOf(body),
    maxTokens: body.max_tokens ?? undefined,
    stopStrings: (body.stop_sequences ?? []).filter((text) => text !== ""),
    constraint: form.constraint,
  };
}

// A request that does not ask for thinking gets none, whatever its effort: so Claude Code says that thinking is off.
function thinkingOf({ thinking, output_config: config }: MessagesBody): Thinking {
  if (!thinking || thinking.type === "disabled") return "off";
  return effortOf(config?.effort) ?? "on";
}

function systemMessages(system: MessagesBody["system"]): Message[] {
  if (system === null || system === undefined) return [];
  const texts = typeof system === "string" ? [system] : system.map((block) => block.text);
  const content = texts.filter((text) => !BILLING_HEADER.test(text)).map((text) => ({ type: "text", text }));
  return content.length === 0 ? [] : [{ role: "system", content }];
}

// Tools with a type of their own run on Anthropic's servers; deferred ones are placeholders.
function toolsOf(tools: NonNullable<MessagesBody["tools"]>): OfferedTool[] {
  return tools.flatMap((tool, index) => {
    if ((tool.type ?? "custom") !== "custom" || tool.defer_loading === true) return [];
    const definition = toolDefinition(tool.name, tool.description, tool.input_schema);
    return [{ definition, schemaPath: `tools[${index}].input_schema` }];
  });
}

function messagesOf(
  message: MessagesBody["messages"][number],
  index: number,
  all: MessagesBody["messages"],
): Message[] {
  const path = `messages[${index}]`;
  const blocks: Block[] =
    typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
  if (message.role === "assistant") return [assistantOf(blocks, path, index === all.length - 1)];
  const texts: ContentPart[] = [];
  const results: Message[] = [];
  blocks.forEach((block, at) => {
    if (block.type === "text") texts.push({ type: "text", text: block.text ?? "" });
    else if (block.type === "tool_result" && message.role === "user") {
      // An image in a result becomes a note in the prompt: refusing it would end the client's whole session.
      const content = typeof block.content === "string" ? block.content : resultParts(block.content ?? []);
      results.push({ role: "tool", content, toolCallId: block.tool_use_id ?? undefined });
    } else throw unsupportedBlock(`${path}.content[${at}]`, block.type);
  });
  if (message.role === "system") return [{ role: "system", content: texts }];
  return texts.length > 0 || results.length === 0 ? [...results, { role: "user", content: texts }] : results;
}

function resultParts(parts: readonly { type: string; text?: string | null }[]): ContentPart[] {
  return parts.map(({ type, text }) => ({ type, text: text ?? undefined }));
}

function assistantOf(blocks: readonly Block[], path: string, isLast: boolean): Message {
  let content = "";
  let reasoning = "";
  const calls: ToolCall[] = [];
  blocks.forEach((block, at) => {
    if (block.type === "text") content += block.text ?? "";
    else if (block.type === "thinking") reasoning += block.thinking || thinkingOfSignature(block.signature);
    else if (block.type === "tool_use") {
      if (!block.name) {
        const param = `${path}.content[${at}].name`;
        throw new ApiError("invalid-request", `${param}: expected a tool's name`, { param });
      }
      const args = (block.input ?? {}) as ToolCall["arguments"];
      calls.push({ id: block.id ?? undefined, name: block.name, arguments: args });
    } else if (block.type !== "redacted_thinking")
      throw unsupportedBlock(`${path}.content[${at}]`, block.type);
  });
  return assistantMessage(content, reasoning, calls, isLast ? path : undefined);
}

function unsupportedBlock(param: string, type: string): ApiError {
  const message = `${param}: content of type ${JSON.stringify(type)} is not supported; this model takes text only`;
  return new ApiError("invalid-request", message, { param });
}
