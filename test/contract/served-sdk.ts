// What official clients must get from a running server with a real model, whatever runs it: whole answers and streams agree,
// errors are typed, a reader that leaves stops the work, parallel requests do not disturb each other. Greedy throughout.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

/** A server to check. */
export interface Served {
  url: string;
  apiKey: string;
  model: string;
}

/** One check; it throws an Error that says what differs. */
export interface SdkCheck {
  name: string;
  run(): Promise<void>;
}

const QUESTION = "What is the capital of France?";
const ANSWER = "Paris";
const MOST_TOKENS = 400;
const PARALLEL = 4;
const messages = [{ role: "user" as const, content: QUESTION }];

/** The checks of both packages. */
export function sdkChecks(served: Served): SdkCheck[] {
  const openai = new OpenAI({ baseURL: `${served.url}/v1`, apiKey: served.apiKey, maxRetries: 0 });
  const anthropic = new Anthropic({ baseURL: served.url, apiKey: served.apiKey, maxRetries: 0 });
  return [...openaiChecks(openai, served), ...anthropicChecks(anthropic, served)];
}

function openaiChecks(openai: OpenAI, { url, model }: Served): SdkCheck[] {
  const request = { model, messages, temperature: 0, max_tokens: MOST_TOKENS };
  const ask = async () => (await openai.chat.completions.create(request)).choices[0].message.content ?? "";
  return [
    {
      name: "openai: lists the model",
      async run() {
        const ids = (await openai.models.list()).data.map(({ id }) => id);
        expectThat(ids.includes(model), `${model} among ${ids}`);
      },
    },
    {
      name: "openai: a chat whole and as a stream",
      async run() {
        const whole = await openai.chat.completions.create(request);
        const text = whole.choices[0].message.content ?? "";
        expectThat(text.includes(ANSWER), `${ANSWER} in "${text}"`);
        const options = { include_usage: true };
        const stream = openai.chat.completions.stream({ ...request, stream_options: options });
        const streamed = await stream.finalChatCompletion();
        expectEqual(streamed.choices[0].message.content, text, "streamed text");
        expectEqual(streamed.choices[0].finish_reason, whole.choices[0].finish_reason, "finish reason");
        expectEqual(streamed.usage?.completion_tokens, whole.usage?.completion_tokens, "completion tokens");
      },
    },
    {
      name: "openai: a response whole and as a stream",
      async run() {
        const asked = { model, input: QUESTION, temperature: 0, max_output_tokens: MOST_TOKENS };
        const whole = await openai.responses.create(asked);
        const streamed = await openai.responses.stream(asked).finalResponse();
        expectThat(whole.output_text.includes(ANSWER), `${ANSWER} in "${whole.output_text}"`);
        expectEqual(streamed.output_text, whole.output_text, "streamed text");
      },
    },
    {
      name: "openai: parallel requests answer as one alone",
      async run() {
        const alone = await ask();
        const texts = await Promise.all(Array.from({ length: PARALLEL }, ask));
        for (const text of texts) expectEqual(text, alone, "parallel text");
      },
    },
    {
      name: "openai: errors are typed",
      async run() {
        await expectRejects(
          openai.chat.completions.create({ ...request, temperature: 1e9 }),
          OpenAI.BadRequestError,
        );
        await expectRejects(openai.models.retrieve("no-such-model"), OpenAI.NotFoundError);
        const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
        await expectRejects(stranger.models.list(), OpenAI.AuthenticationError);
      },
    },
    {
      name: "openai: a reader that leaves stops the work",
      async run() {
        const stream = await openai.chat.completions.create({ ...request, stream: true });
        for await (const chunk of stream) if (chunk.choices.length > 0) break;
        expectThat((await ask()).includes(ANSWER), "an answer afterwards");
      },
    },
  ];
}

function anthropicChecks(anthropic: Anthropic, { url, model }: Served): SdkCheck[] {
  const request = { model, messages, temperature: 0, max_tokens: MOST_TOKENS };
  const textOf = ({ content }: Anthropic.Message) =>
    content.map((block) => (block.type === "text" ? block.text : "")).join("");
  return [
    {
      name: "anthropic: a message whole and as a stream",
      async run() {
        const whole = await anthropic.messages.create(request);
        const streamed = await anthropic.messages.stream(request).finalMessage();
        expectThat(textOf(whole).includes(ANSWER), `${ANSWER} in "${textOf(whole)}"`);
        expectEqual(textOf(streamed), textOf(whole), "streamed text");
        expectEqual(streamed.stop_reason, whole.stop_reason, "stop reason");
        expectEqual(streamed.usage.output_tokens, whole.usage.output_tokens, "output tokens");
      },
    },
    {
      name: "anthropic: tokens are counted as they are used",
      async run() {
        const { usage } = await anthropic.messages.create(request);
        const { input_tokens } = await anthropic.messages.countTokens({ model, messages });
        const { cache_read_input_tokens: read, cache_creation_input_tokens: made } = usage;
        expectEqual(usage.input_tokens + (read ?? 0) + (made ?? 0), input_tokens, "input tokens");
      },
    },
    {
      name: "anthropic: errors are typed",
      async run() {
        await expectRejects(
          anthropic.messages.create({ ...request, tool_choice: { type: "any" } }),
          Anthropic.BadRequestError,
        );
        const stranger = new Anthropic({ baseURL: url, apiKey: "wrong", maxRetries: 0 });
        await expectRejects(stranger.messages.create(request), Anthropic.AuthenticationError);
      },
    },
  ];
}

function expectThat(holds: boolean, expected: string): void {
  if (!holds) throw new Error(`expected ${expected}`);
}

function expectEqual(found: unknown, expected: unknown, what: string): void {
  expectThat(
    Object.is(found, expected),
    `${what} ${JSON.stringify(expected)}, found ${JSON.stringify(found)}`,
  );
}

async function expectRejects(
  promise: PromiseLike<unknown>,
  type: abstract new (...args: never[]) => Error,
): Promise<void> {
  const outcome = await Promise.resolve(promise).then(
    () => "an answer",
    (error: unknown) => error,
  );
  expectThat(outcome instanceof type, `${type.name}, found ${outcome}`);
}
