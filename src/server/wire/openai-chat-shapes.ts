// A chat answer in OpenAI's shapes: chunk by chunk, or whole. Knows neither HTTP nor how the answer was asked for.
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { AnswerEvent, CollectedAnswer, TokenLogprobs } from "../answer-events.ts";
import { newId } from "../conversation-request.ts";
import type { ChatCompletion, ChatCompletionChunk, ChatDelta, ChatLogprobs } from "./openai-chat-types.ts";
import { chatLogprobs, openAiFinish, openAiUsage, timings } from "./openai-usage.ts";
import type { AnswerStart } from "./wire.ts";

/** What of a request decides the shapes. */
export interface ChatShapeOptions {
  /** A last chunk with usage is wanted. */
  includesUsage: boolean;
  wantsLogprobs: boolean;
  tokenizer: Tokenizer;
}

/** Chunks and answer of one request; all have the same id. */
export class ChatShapes {
  readonly #options: ChatShapeOptions;
  readonly #id = newId("chatcmpl-");

  constructor(options: ChatShapeOptions) {
    this.#options = options;
  }

  /** The chunks of a stream. Throws what `events` throws. */
  async *chunks(
    events: AsyncIterable<AnswerEvent>,
    start: AnswerStart,
  ): AsyncGenerator<ChatCompletionChunk, void> {
    const { includesUsage } = this.#options;
    const head = {
      id: this.#id,
      object: "chat.completion.chunk" as const,
      created: start.createdSeconds,
      model: start.modelId,
    };
    const nullUsage = includesUsage ? { usage: null } : {};
    const chunk = (
      delta: ChatDelta,
      rest: Partial<ChatCompletionChunk["choices"][number]> = {},
    ): ChatCompletionChunk => ({
      ...head,
      choices: [{ index: 0, delta, logprobs: null, finish_reason: null, ...rest }],
      ...nullUsage,
    });
    yield chunk({ role: "assistant", content: "" });
    for await (const event of events) {
      if (event.kind === "reasoning") yield chunk({ reasoning_content: event.text });
      else if (event.kind === "content") {
        yield chunk({ content: event.text }, { logprobs: this.#logprobs(event.logprobs) });
      } else if (event.kind === "tool-start") {
        const { index, id, name } = event;
        yield chunk({ tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }] });
      } else if (event.kind === "tool-arguments") {
        yield chunk({ tool_calls: [{ index: event.index, function: { arguments: event.delta } }] });
      } else if (event.kind === "finish") {
        yield chunk({}, { finish_reason: openAiFinish(event.finish) });
        if (includesUsage) {
          const usage = openAiUsage(event.usage);
          yield { ...head, choices: [], usage, timings: timings(event.usage) };
        }
      }
    }
  }

  /** The whole answer. */
  answer(answer: CollectedAnswer, start: AnswerStart): ChatCompletion {
    const calls = answer.calls.map(({ id, name, argumentsJson }) => ({
      id,
      type: "function" as const,
      function: { name, arguments: argumentsJson },
    }));
    return {
      id: this.#id,
      object: "chat.completion",
      created: start.createdSeconds,
      model: start.modelId,
      choices: [
        {
          index: 0,
          message: {
            role: "assistant",
            content:
              answer.content === "" && (calls.length > 0 || answer.reasoning !== "") ? null : answer.content,
            refusal: null,
            ...(answer.reasoning === "" ? {} : { reasoning_content: answer.reasoning }),
            ...(calls.length === 0 ? {} : { tool_calls: calls }),
          },
          logprobs: this.#logprobs(answer.logprobs),
          finish_reason: openAiFinish(answer.finish),
        },
      ],
      usage: openAiUsage(answer.usage),
      timings: timings(answer.usage),
    };
  }

  #logprobs(logprobs: readonly TokenLogprobs[] | undefined): ChatLogprobs | null {
    if (!this.#options.wantsLogprobs || logprobs === undefined) return null;
    return chatLogprobs(this.#options.tokenizer, logprobs);
  }
}
