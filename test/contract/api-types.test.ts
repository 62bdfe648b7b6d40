// The library's types against the openai package's: what compiles here is what callers can swap.
import type OpenAI from "openai";
import { expectTypeOf, it } from "vitest";
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionParams,
  ChatCompletionStream,
  ChatMessageParam,
  ChatToolParam,
  Engine,
  ModelObject,
} from "../../src/index.ts";

it("gives what the SDK gives", () => {
  expectTypeOf<ChatCompletion>().toExtend<OpenAI.Chat.ChatCompletion>();
  expectTypeOf<ChatCompletionChunk>().toExtend<OpenAI.Chat.ChatCompletionChunk>();
  expectTypeOf<ChatCompletion["choices"][0]["message"]>().toExtend<OpenAI.ChatCompletionMessageParam>();
  expectTypeOf<ModelObject>().toExtend<OpenAI.Model>();
});

it("takes what the SDK takes", () => {
  expectTypeOf<OpenAI.ChatCompletionMessageParam>().toExtend<ChatMessageParam>();
  expectTypeOf<OpenAI.ChatCompletionTool>().toExtend<ChatToolParam>();
  expectTypeOf<OpenAI.ChatCompletionCreateParams>().toExtend<ChatCompletionParams>();
});

it("answers by `stream`", () => {
  const check = async (engine: Engine, params: Omit<ChatCompletionParams, "stream">, stream: boolean) => {
    const { completions } = engine.chat;
    expectTypeOf(await completions.create({ ...params, stream: true })).toEqualTypeOf<ChatCompletionStream>();
    expectTypeOf(await completions.create(params)).toEqualTypeOf<ChatCompletion>();
    expectTypeOf(await completions.create({ ...params, stream: false })).toEqualTypeOf<ChatCompletion>();
    expectTypeOf(await completions.create({ ...params, stream })).toEqualTypeOf<
      ChatCompletion | ChatCompletionStream
    >();
  };
  expectTypeOf(check).toBeFunction();
});
