// POST /v1/completions: text in, text on. The prompt goes to the model as it is, marks included, as the caller writes all
// of it; a begin token is added if it is missing.
import { z } from "zod";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { AnswerEvent, CollectedAnswer, TokenLogprobs } from "../answer-events.ts";
import { ApiError, notSupported } from "../api-error.ts";
import { newId } from "../conversation-request.ts";
import { MAX_TOKEN_IDS } from "../limits.ts";
import { answerForm, responseFormat } from "./answer-constraint.ts";
import { openAiErrorBody } from "./openai-errors.ts";
import { openAiFinish, openAiUsage, timings, tokenText } from "./openai-usage.ts";
import { parseBody } from "./parse-body.ts";
import {
  maxTokensField,
  responseFormatField,
  samplingFields,
  samplingOf,
  stopField,
  stopsOf,
} from "./request-fields.ts";
import { type AnswerStart, COMMENT, dataEvent, EVENT_STREAM, type WireJob } from "./wire.ts";

/** OpenAI's default for this endpoint is 16, which nobody expects of a local server: the rest of the context. */
export const completionRequestSchema = z.looseObject({
  model: z.string().nullish(),
  prompt: z.union([z.string(), z.array(z.string()), z.array(z.int().min(0)).max(MAX_TOKEN_IDS)]),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: maxTokensField,
  n: z.int().min(1).nullish(),
  best_of: z.int().min(1).nullish(),
  echo: z.boolean().nullish(),
  suffix: z.string().nullish(),
  stop: stopField,
  logprobs: z.int().min(0).max(20).nullish(),
  response_format: responseFormatField,
  ...samplingFields,
});

type CompletionBody = z.output<typeof completionRequestSchema>;

/** A checked completion request. Throws `ApiError`. */
export function completionJob(body: unknown, tokenizer: Tokenizer): WireJob {
  const parsed = parseBody(completionRequestSchema, body);
  if ((parsed.n ?? 1) > 1) throw notSupported("n", "more than one choice");
  if ((parsed.best_of ?? 1) > 1) throw notSupported("best_of", "more than one candidate");
  if (parsed.echo) throw notSupported("echo", "echoing the prompt");
  if (parsed.suffix) throw notSupported("suffix", "filling in the middle");
  const form = answerForm([], { mode: "none", maxCalls: 0 }, responseFormat(parsed.response_format));
  const shapes = new CompletionShapes(parsed, tokenizer);
  return {
    request: {
      prompt: { kind: "raw", prompt: promptOf(parsed.prompt, tokenizer) },
      sampling: samplingOf(parsed),
      maxTokens: parsed.max_tokens ?? undefined,
      stopStrings: stopsOf(parsed.stop),
      topLogprobs: parsed.logprobs ?? undefined,
      constraint: form.constraint,
    },
    isStream: parsed.stream === true,
    frames: (events, start) => shapes.frames(events, start),
    failure: (error) => dataEvent(openAiErrorBody(error)),
    answer: (answer, start) => shapes.answer(answer, start),
    keepAlive: COMMENT,
    contentType: EVENT_STREAM,
  };
}

function promptOf(prompt: CompletionBody["prompt"], tokenizer: Tokenizer): string | number[] {
  if (typeof prompt === "string") return prompt;
  const refuse = (message: string) =>
    new ApiError("invalid-request", `prompt: ${message}`, { param: "prompt" });
  if (prompt.length === 0) throw refuse("expected a text or token ids, got an empty array");
  if (typeof prompt[0] === "string") {
    if (prompt.length > 1) throw refuse("one prompt at a time is supported, got several");
    return prompt[0];
  }
  const ids = prompt as number[];
  const wrong = ids.find((id) => id >= tokenizer.vocabSize);
  if (wrong !== undefined) throw refuse(`expected token ids below ${tokenizer.vocabSize}, got ${wrong}`);
  return ids;
}

class CompletionShapes {
  readonly #body: CompletionBody;
  readonly #tokenizer: Tokenizer;
  readonly #id = newId("cmpl-");
  #offset = 0;

  constructor(body: CompletionBody, tokenizer: Tokenizer) {
    this.#body = body;
    this.#tokenizer = tokenizer;
  }

  async *frames(events: AsyncIterable<AnswerEvent>, start: AnswerStart): AsyncGenerator<string, void> {
    const includesUsage = this.#body.stream_options?.include_usage === true;
    const head = this.#head(start);
    const chunk = (text: string, finish: string | null, logprobs: readonly TokenLogprobs[] = []) =>
      dataEvent({
        ...head,
        choices: [{ index: 0, text, logprobs: this.#logprobs(logprobs), finish_reason: finish }],
        ...(includesUsage ? { usage: null } : {}),
      });
    for await (const event of events) {
      if (event.kind === "content") yield chunk(event.text, null, event.logprobs);
      else if (event.kind === "finish") {
        yield chunk("", openAiFinish(event.finish));
        if (includesUsage) {
          const usage = openAiUsage(event.usage);
          yield dataEvent({ ...head, choices: [], usage, timings: timings(event.usage) });
        }
        yield "data: [DONE]\n\n";
      }
    }
  }

  answer(answer: CollectedAnswer, start: AnswerStart): object {
    const choice = {
      index: 0,
      text: answer.content,
      logprobs: this.#logprobs(answer.logprobs),
      finish_reason: openAiFinish(answer.finish),
    };
    const { usage } = answer;
    return { ...this.#head(start), choices: [choice], usage: openAiUsage(usage), timings: timings(usage) };
  }

  #head(start: AnswerStart): object {
    return { id: this.#id, object: "text_completion", created: start.createdSeconds, model: start.modelId };
  }

  #logprobs(logprobs: readonly TokenLogprobs[]): object | null {
    if (typeof this.#body.logprobs !== "number") return null;
    const text = (tokenId: number) => tokenText(this.#tokenizer, tokenId).token;
    const tokens = logprobs.map(({ chosen }) => text(chosen.tokenId));
    return {
      tokens,
      token_logprobs: logprobs.map(({ chosen }) => chosen.logprob),
      top_logprobs: logprobs.map(({ alternatives }) =>
        Object.fromEntries(alternatives.map(({ tokenId, logprob }) => [text(tokenId), logprob])),
      ),
      text_offset: tokens.map((token) => {
        const offset = this.#offset;
        this.#offset += token.length;
        return offset;
      }),
    };
  }
}
