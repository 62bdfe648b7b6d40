// The official SDKs against the server on a port, over a script: what they parse is what clients get.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EngineCrashedError } from "../../src/session/session-errors.ts";
import { callTokens, testHttpServer } from "../fixtures/test-server.ts";

type Server = Awaited<ReturnType<typeof testHttpServer>>;
let server: Server;
let openai: OpenAI;
let anthropic: Anthropic;

beforeAll(async () => {
  server = await testHttpServer({ apiKeys: ["sk-test"] });
  openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "sk-test", maxRetries: 0 });
  anthropic = new Anthropic({ baseURL: server.url, apiKey: "sk-test", maxRetries: 0 });
});
afterAll(() => server.http.destroy());

const until = async (isTrue: () => boolean) => {
  for (let tries = 0; tries < 400 && !isTrue(); tries++)
    await new Promise((resolve) => setTimeout(resolve, 10));
  expect(isTrue()).toBe(true);
};
const parameters = {
  type: "object" as const,
  properties: { command: { type: "string" } },
  required: ["command"],
};
const messages = [{ role: "user" as const, content: "Hi" }];
const turn = ["Hm", " yes", "</think>", "Running", ".", ...callTokens("bash", "command", "make 2>&1")];

describe("the openai package", () => {
  const tools = [{ type: "function" as const, function: { name: "bash", parameters } }];

  it("lists models", async () => {
    const models = await openai.models.list();
    expect(models.data.map(({ id }) => id)).toEqual(["nano"]);
    expect(await openai.models.retrieve("nano")).toMatchObject({ id: "nano", context_length: 4096 });
  });

  it("reads a chat whole and as a stream, to the same end", async () => {
    server.source.play({ tokens: turn });
    const whole = await openai.chat.completions.create({ model: "nano", messages, tools });
    expect(whole._request_id).toMatch(/^req_/);
    const stream = openai.chat.completions.stream({
      model: "nano",
      messages,
      tools,
      stream_options: { include_usage: true },
    });
    const streamed = await stream.finalChatCompletion();
    for (const { choices, usage } of [whole, streamed]) {
      expect(choices[0]).toMatchObject({ finish_reason: "tool_calls", message: { content: "Running." } });
      const [call] = choices[0].message.tool_calls!;
      expect(call.type === "function" && JSON.parse(call.function.arguments)).toEqual({
        command: "make 2>&1",
      });
      expect(usage).toMatchObject({ completion_tokens: turn.length });
    }
    expect(whole.choices[0].message).toMatchObject({ reasoning_content: "Hm yes" });
  });

  it("reads a response whole and as a stream, to the same end", async () => {
    server.source.play({ tokens: turn });
    const request = {
      model: "nano",
      input: "Hi",
      tools: [{ type: "function" as const, name: "bash", parameters, strict: false }],
    };
    const whole = await openai.responses.create(request);
    const types: string[] = [];
    const stream = openai.responses.stream(request).on("event", ({ type }) => types.push(type));
    const streamed = await stream.finalResponse();
    for (const response of [whole, streamed]) {
      expect(response.output_text).toBe("Running.");
      expect(response.output.map(({ type }) => type)).toEqual(["reasoning", "message", "function_call"]);
      expect(response.output[0]).toMatchObject({ content: [{ type: "reasoning_text", text: "Hm yes" }] });
      expect(response.output[2]).toMatchObject({ name: "bash", arguments: '{"command":"make 2>&1"}' });
      expect(response.usage?.output_tokens).toBe(turn.length);
    }
    expect(types[0]).toBe("response.created");
    expect(types.at(-1)).toBe("response.completed");
    const next = await openai.responses.create({
      model: "nano",
      input: "More",
      previous_response_id: whole.id,
    });
    expect(next.status).toBe("completed");
  });

  it("raises its typed errors", async () => {
    server.source.play({ tokens: ["x"] });
    const wrong = openai.chat.completions.create({ model: "nano", messages, temperature: 1e9 });
    await expect(wrong).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    await expect(wrong).rejects.toMatchObject({ status: 400, param: "temperature" });
    const long = openai.chat.completions.create({
      model: "nano",
      messages: [{ role: "user", content: "word ".repeat(9000) }],
    });
    await expect(long).rejects.toMatchObject({ code: "context_length_exceeded" });
    const stranger = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "sk-wrong", maxRetries: 0 });
    await expect(stranger.models.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
    await expect(openai.models.retrieve("gpt")).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  });

  it("raises an error in the middle of a stream", async () => {
    server.source.play({ tokens: ["a", "b", "c"], failAt: 2 });
    const stream = await openai.chat.completions.create({ model: "nano", messages, stream: true });
    let text = "";
    const reading = (async () => {
      for await (const chunk of stream)
        text += (chunk.choices[0].delta as { reasoning_content?: string }).reasoning_content ?? "";
    })();
    await expect(reading).rejects.toBeInstanceOf(OpenAI.APIError);
    expect(text).toBe("ab");
  });

  it("stops the work when the reader leaves, streaming and not (case 83)", async () => {
    server.source.play({ tokens: ["x"], isEndless: true, tokenMs: 5 });
    const before = server.source.cancelled;
    const stream = await openai.chat.completions.create({ model: "nano", messages, stream: true });
    for await (const chunk of stream) if (chunk.choices.length > 0) break;
    await until(() => server.source.running === 0);
    const controller = new AbortController();
    const whole = openai.chat.completions.create({ model: "nano", messages }, { signal: controller.signal });
    await until(() => server.source.running === 1);
    controller.abort();
    await expect(whole).rejects.toBeInstanceOf(OpenAI.APIUserAbortError);
    await until(() => server.source.running === 0);
    expect(server.source.cancelled).toBeGreaterThan(before);
  });
});

describe("the @anthropic-ai/sdk package", () => {
  const tools = [{ name: "bash", input_schema: parameters }];
  const base = { model: "nano", max_tokens: 600, messages, tools, thinking: { type: "adaptive" as const } };

  it("reads a message whole and as a stream, to the same end", async () => {
    server.source.play({ tokens: turn, reusedTokens: 5 });
    const whole = await anthropic.messages.create(base);
    const streamed = await anthropic.messages.stream(base).finalMessage();
    for (const { content, stop_reason, usage } of [whole, streamed]) {
      expect(content).toMatchObject([
        { type: "thinking", thinking: "Hm yes", signature: expect.stringMatching(/^ds4/) },
        { type: "text", text: "Running." },
        { type: "tool_use", name: "bash", input: { command: "make 2>&1" } },
      ]);
      expect(stop_reason).toBe("tool_use");
      expect(usage).toMatchObject({ output_tokens: turn.length, cache_read_input_tokens: 5 });
    }
    expect(whole.usage.input_tokens).toBe(streamed.usage.input_tokens);
    const { input_tokens } = await anthropic.messages.countTokens(base);
    // All but the prompt's end, which is evaluated anew when it is sent again.
    expect(whole.usage).toMatchObject({ input_tokens: 4, cache_creation_input_tokens: input_tokens - 9 });
  });

  it("lists models and raises its typed errors", async () => {
    const page = await anthropic.models.list();
    expect(page.data.map(({ id }) => id)).toEqual(["nano"]);
    const wrong = anthropic.messages.create({ ...base, tool_choice: { type: "tool", name: "x" } });
    await expect(wrong).rejects.toBeInstanceOf(Anthropic.BadRequestError);
    const long = { ...base, messages: [{ role: "user" as const, content: "word ".repeat(9000) }] };
    await expect(anthropic.messages.create(long)).rejects.toThrow(
      /prompt is too long: \d+ tokens > 4096 maximum/,
    );
    const stranger = new Anthropic({ baseURL: server.url, apiKey: "no", maxRetries: 0 });
    await expect(stranger.messages.create(base)).rejects.toBeInstanceOf(Anthropic.AuthenticationError);
  });

  it("stops the work when the reader leaves", async () => {
    server.source.play({ tokens: ["x"], isEndless: true, tokenMs: 5 });
    const stream = anthropic.messages.stream(base);
    await until(() => server.source.running === 1);
    stream.abort();
    await expect(stream.finalMessage()).rejects.toBeInstanceOf(Anthropic.APIUserAbortError);
    await until(() => server.source.running === 0);
  });

  it("raises an error in the middle of a stream, after which the server says that it failed (case 36)", async () => {
    server.source.play({ tokens: ["a", "b"], failAt: 1, failure: new EngineCrashedError("device lost") });
    await expect(anthropic.messages.stream(base).finalMessage()).rejects.toBeInstanceOf(Anthropic.APIError);
    expect((await fetch(`${server.url}/health`)).status).toBe(503);
    await expect(anthropic.messages.create(base)).rejects.toMatchObject({ status: 503 });
  });
});
