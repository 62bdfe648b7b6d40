// POST /v1/messages and its count_tokens: Anthropic's blocks, events and errors.
import { TAIL_TOKENS } from "../../scheduler/prefix-reuse.ts";
import type { AnswerEvent, AnswerFinish, AnswerUsage, CollectedAnswer } from "../answer-events.ts";
import type { ApiError, ApiErrorKind } from "../api-error.ts";
import type { ConversationRequest } from "../conversation-request.ts";
import { newId } from "../conversation-request.ts";
import { type MessagesBody, messagesRequest, messagesRequestSchema } from "./anthropic-request.ts";
import { parseBody } from "./parse-body.ts";
import { carrierOf, signatureOf } from "./thinking-signature.ts";
import { type AnswerStart, EVENT_STREAM, namedEvent, type WireJob } from "./wire.ts";

/** A checked messages request. Throws `ApiError`. */
export function messagesJob(body: unknown): WireJob {
  const parsed = parseBody(messagesRequestSchema, body);
  const shapes = new MessageShapes(parsed);
  return {
    request: messagesRequest(parsed),
    isStream: parsed.stream === true,
    frames: (events, start) => shapes.frames(events, start),
    failure: (error) => namedEvent("error", anthropicErrorBody(error)),
    answer: (answer, start) => shapes.answer(answer, start),
    // Clients count protocol events as signs of life, not comments.
    keepAlive: namedEvent("ping", { type: "ping" }),
    contentType: EVENT_STREAM,
  };
}

/** The request whose prompt `count_tokens` counts. Throws `ApiError`. */
export function countTokensRequest(body: unknown): ConversationRequest {
  return messagesRequest(parseBody(messagesRequestSchema, body));
}

const TYPES: Readonly<Record<ApiErrorKind, string>> = {
  "invalid-request": "invalid_request_error",
  unauthorized: "authentication_error",
  forbidden: "permission_error",
  "not-found": "not_found_error",
  "too-large": "request_too_large",
  "context-overflow": "invalid_request_error",
  busy: "rate_limit_error",
  unavailable: "overloaded_error",
  cancelled: "api_error",
  server: "api_error",
};

/** `{ type: "error", error: { type, message } }`. */
export function anthropicErrorBody(error: ApiError): object {
  const { promptTokens, ctxTokens } = error.details;
  const message =
    error.kind === "context-overflow"
      ? `prompt is too long: ${promptTokens} tokens > ${ctxTokens} maximum`
      : error.message;
  return { type: "error", error: { type: TYPES[error.kind], message }, request_id: null };
}

type BlockKind = "thinking" | "text" | "tool_use";

class MessageShapes {
  readonly #id = newId("msg_");
  /** The client does not want to see thinking; its signature carries it. */
  readonly #hidesThinking: boolean;

  constructor(body: MessagesBody) {
    this.#hidesThinking = body.thinking?.display === "omitted";
  }

  async *frames(events: AsyncIterable<AnswerEvent>, start: AnswerStart): AsyncGenerator<string, void> {
    const event = (type: string, fields: object) => namedEvent(type, { type, ...fields });
    const usage = usageOf({ promptTokens: start.promptTokens, reusedTokens: 0, completionTokens: 0 });
    yield event("message_start", {
      message: { ...this.#head(start), content: [], stop_reason: null, usage },
    });
    let index = -1;
    let open: BlockKind | undefined;
    let thinking = "";
    const delta = (fields: object) => event("content_block_delta", { index, delta: fields });
    const close = (): string => {
      if (open === undefined) return "";
      const signature =
        open === "thinking" ? delta({ type: "signature_delta", signature: this.#sign(thinking) }) : "";
      open = undefined;
      thinking = "";
      return signature + event("content_block_stop", { index });
    };
    const begin = (kind: BlockKind, block: object): string => {
      const closed = close();
      index++;
      open = kind;
      return closed + event("content_block_start", { index, content_block: { type: kind, ...block } });
    };
    for await (const step of events) {
      if (step.kind === "reasoning") {
        if (open !== "thinking") yield begin("thinking", { thinking: "", signature: "" });
        thinking += step.text;
        if (!this.#hidesThinking) yield delta({ type: "thinking_delta", thinking: step.text });
      } else if (step.kind === "content") {
        if (open !== "text") yield begin("text", { text: "" });
        yield delta({ type: "text_delta", text: step.text });
      } else if (step.kind === "tool-start") {
        yield begin("tool_use", { id: toolId(step.id), name: step.name, input: {} });
      } else if (step.kind === "tool-arguments") {
        yield delta({ type: "input_json_delta", partial_json: step.delta });
      } else if (step.kind === "tool-end") {
        yield close();
      } else if (step.kind === "finish") {
        const end = event("message_delta", { delta: stopOf(step), usage: usageOf(step.usage) });
        yield close() + end + event("message_stop", {});
      }
    }
  }

  answer(answer: CollectedAnswer, start: AnswerStart): object {
    const content: object[] = [];
    if (answer.reasoning !== "") {
      const thinking = this.#hidesThinking ? "" : answer.reasoning;
      content.push({ type: "thinking", thinking, signature: this.#sign(answer.reasoning) });
    }
    if (answer.content !== "") content.push({ type: "text", text: answer.content });
    for (const { id, name, argumentsJson } of answer.calls) {
      content.push({ type: "tool_use", id: toolId(id), name, input: JSON.parse(argumentsJson) });
    }
    return { ...this.#head(start), content, ...stopOf(answer), usage: usageOf(answer.usage) };
  }

  #head(start: AnswerStart): object {
    return { id: this.#id, type: "message", role: "assistant", model: start.modelId, stop_sequence: null };
  }

  #sign(thinking: string): string {
    return this.#hidesThinking ? carrierOf(thinking) : signatureOf(thinking);
  }
}

function toolId(id: string): string {
  return id.replace(/^call_/, "toolu_");
}

function stopOf({ finish, stopString }: { finish: AnswerFinish; stopString?: string }): object {
  const reasons = {
    stop: "end_turn",
    "stop-string": "stop_sequence",
    length: "max_tokens",
    "tool-calls": "tool_use",
  };
  return { stop_reason: reasons[finish], stop_sequence: stopString ?? null };
}

/**
 * Anthropic's three input counts add up to the prompt: read from the cache, newly kept in it, and neither. All that is
 * evaluated is kept, but a prompt's last tokens are evaluated anew when it is sent again.
 */
function usageOf(usage: Pick<AnswerUsage, "promptTokens" | "reusedTokens" | "completionTokens">): object {
  const evaluatedTokens = usage.promptTokens - usage.reusedTokens;
  const keptTokens = Math.max(0, evaluatedTokens - TAIL_TOKENS);
  return {
    input_tokens: evaluatedTokens - keptTokens,
    cache_creation_input_tokens: keptTokens,
    cache_read_input_tokens: usage.reusedTokens,
    output_tokens: usage.completionTokens,
  };
}
