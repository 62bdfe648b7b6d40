// The objects of OpenAI's Responses API: output items and the response around them.
import type { AnswerFinish, AnswerUsage, CollectedAnswer } from "../answer-events.ts";
import { newId } from "../conversation-request.ts";
import type { ResponsesBody } from "./openai-responses-request.ts";
import { carrierOf } from "./thinking-signature.ts";
import type { AnswerStart } from "./wire.ts";

/** An output item. */
export type OutputItem = { id: string; type: string } & Record<string, unknown>;

/** The objects of one response. */
export class ResponseShapes {
  readonly id = newId("resp_");
  readonly showsSummary: boolean;
  readonly #carriesReasoning: boolean;
  readonly #body: ResponsesBody;

  constructor(body: ResponsesBody) {
    this.#body = body;
    this.showsSummary = Boolean(body.reasoning?.summary);
    this.#carriesReasoning = (body.include ?? []).includes("reasoning.encrypted_content");
  }

  reasoning(id: string, text: string, status: string): OutputItem {
    const part = (type: string) => (text === "" ? [] : [{ type, text }]);
    return {
      id,
      type: "reasoning",
      summary: this.showsSummary ? part("summary_text") : [],
      ...(this.showsSummary ? {} : { content: part("reasoning_text") }),
      ...(this.#carriesReasoning ? { encrypted_content: text === "" ? null : carrierOf(text) } : {}),
      status,
    };
  }

  message(id: string, text: string | undefined, status: string): OutputItem {
    const content = text === undefined ? [] : [outputText(text)];
    return { id, type: "message", status, role: "assistant", content };
  }

  call(id: string, callId: string, name: string, argumentsJson: string, status: string): OutputItem {
    return { id, type: "function_call", status, call_id: callId, name, arguments: argumentsJson };
  }

  response(start: AnswerStart, status: string, output: readonly OutputItem[], extra: object = {}): object {
    const body = this.#body;
    return {
      id: this.id,
      object: "response",
      created_at: start.createdSeconds,
      status,
      error: null,
      incomplete_details: null,
      instructions: body.instructions ?? null,
      max_output_tokens: body.max_output_tokens ?? null,
      metadata: body.metadata ?? {},
      model: start.modelId,
      output,
      parallel_tool_calls: body.parallel_tool_calls !== false,
      previous_response_id: body.previous_response_id ?? null,
      reasoning: { effort: body.reasoning?.effort ?? null, summary: body.reasoning?.summary ?? null },
      store: body.store !== false,
      temperature: body.temperature ?? 1,
      text: { format: body.text?.format ?? { type: "text" } },
      tool_choice: body.tool_choice ?? "auto",
      tools: body.tools ?? [],
      top_p: body.top_p ?? 1,
      truncation: "disabled",
      usage: null,
      ...extra,
    };
  }

  finished(
    start: AnswerStart,
    finish: AnswerFinish,
    usage: AnswerUsage,
    output: readonly OutputItem[],
  ): object {
    const isCut = finish === "length";
    return this.response(start, isCut ? "incomplete" : "completed", output, {
      incomplete_details: isCut ? { reason: "max_output_tokens" } : null,
      usage: usageOf(usage),
    });
  }

  whole(answer: CollectedAnswer, start: AnswerStart): object {
    const output: OutputItem[] = [];
    const status = answer.finish === "length" ? "incomplete" : "completed";
    if (answer.reasoning !== "") output.push(this.reasoning(newId("rs_"), answer.reasoning, "completed"));
    if (answer.content !== "" || answer.calls.length === 0) {
      output.push(this.message(newId("msg_"), answer.content, status));
    }
    for (const { id, name, argumentsJson } of answer.calls) {
      output.push(this.call(newId("fc_"), id, name, argumentsJson, "completed"));
    }
    return this.finished(start, answer.finish, answer.usage, output);
  }
}

/** A message's only part. */
export function outputText(text: string): object {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

function usageOf(usage: AnswerUsage): object {
  return {
    input_tokens: usage.promptTokens,
    input_tokens_details: { cached_tokens: usage.reusedTokens },
    output_tokens: usage.completionTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    total_tokens: usage.promptTokens + usage.completionTokens,
  };
}
