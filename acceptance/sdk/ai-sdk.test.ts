// The Vercel AI SDK against the server, over scripts, over a scripted backend and over the nano model.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";
import { BUNDLED_MODEL_PATH } from "../../src/api/open-model.ts";
import { type ScriptedServer, scriptedServer } from "../../test/fixtures/scripted-server.ts";
import { AGAIN } from "../../test/fixtures/shell-script.ts";
import { callTokens, testHttpServer } from "../../test/fixtures/test-server.ts";

const API_KEY = "sk-test";
const PROOF = "proof 42 of project";

function modelAt(url: string, apiKey = API_KEY, supportsStructuredOutputs = false) {
  const provider = createOpenAICompatible({
    ...{ name: "ds4", baseURL: `${url}/v1`, apiKey, includeUsage: true, supportsStructuredOutputs },
  });
  return provider("deepseek-v4-flash");
}

const bash = tool({
  description: "Runs a command",
  inputSchema: z.object({ command: z.string(), description: z.string().optional() }),
  execute: async ({ command }) => (command.includes("ds4-proof") ? PROOF : `unexpected: ${command}`),
});

describe("over scripts", () => {
  let server: Awaited<ReturnType<typeof testHttpServer>>;
  before(async () => {
    server = await testHttpServer({ apiKeys: [API_KEY] });
  });
  after(async () => {
    void server.http.stop();
    server.http.destroy();
  });
  const tokens = ["Hm", " yes", "</think>", "Hello", " world", "!"];

  it("reads text, reasoning and usage, whole and streamed, to the same end", async () => {
    server.source.play({ tokens, reusedTokens: 3 });
    const request = { model: modelAt(server.url), prompt: "Hi", maxRetries: 0 };
    const whole = await generateText(request);
    const stream = streamText(request);
    let text = "";
    for await (const delta of stream.textStream) text += delta;
    assert.equal(text, "Hello world!");
    const streamed = {
      text: await stream.text,
      reasoningText: await stream.reasoningText,
      finishReason: await stream.finishReason,
      usage: await stream.usage,
    };
    for (const result of [whole, streamed]) {
      assert.equal(result.text, "Hello world!");
      assert.equal(result.reasoningText, "Hm yes");
      assert.equal(result.finishReason, "stop");
      assert.equal(result.usage.outputTokens, tokens.length);
      assert.equal(result.usage.inputTokenDetails.cacheReadTokens, 3);
      assert.equal(result.usage.outputTokenDetails.reasoningTokens, 3);
      assert.ok(result.usage.inputTokens! > 3);
    }
  });

  it("reads calls of tools, several in one answer", async () => {
    const call = callTokens("bash", "command", "make 2>&1");
    server.source.play({ tokens: ["</think>", "Running", ".", ...call] });
    const tools = { bash: tool({ inputSchema: z.object({ command: z.string() }) }) };
    const result = await generateText({ model: modelAt(server.url), prompt: "Hi", tools });
    assert.equal(result.finishReason, "tool-calls");
    assert.deepEqual(
      result.toolCalls.map(({ toolName, input }) => ({ toolName, input })),
      [{ toolName: "bash", input: { command: "make 2>&1" } }],
    );
  });

  it("ends at the limit, and says so", async () => {
    server.source.play({ tokens });
    const result = await generateText({ model: modelAt(server.url), prompt: "Hi", maxOutputTokens: 4 });
    assert.equal(result.finishReason, "length");
    assert.equal(result.text, "Hello");
  });

  it("raises its typed errors with the server's words", async () => {
    const failure = async (run: () => PromiseLike<unknown>) => {
      try {
        await run();
      } catch (error) {
        assert.ok(APICallError.isInstance(error), String(error));
        return error;
      }
      throw new assert.AssertionError({ message: "expected an error" });
    };
    const base = { prompt: "Hi", maxRetries: 0 };
    const denied = await failure(() => generateText({ ...base, model: modelAt(server.url, "sk-wrong") }));
    assert.equal(denied.statusCode, 401);
    assert.equal(denied.isRetryable, false);
    const wrong = await failure(() =>
      generateText({ ...base, model: modelAt(server.url), temperature: 1e9 }),
    );
    assert.equal(wrong.statusCode, 400);
    assert.match(wrong.message, /temperature/);
    const long = await failure(() =>
      generateText({ ...base, model: modelAt(server.url), prompt: "word ".repeat(9000) }),
    );
    assert.match(long.message, /context length/);
  });

  it("raises an error in the middle of a stream", async () => {
    server.source.play({ tokens: ["</think>", "a", "b", "c"], failAt: 3 });
    const errors: unknown[] = [];
    const onError = ({ error }: { error: unknown }) => void errors.push(error);
    const stream = streamText({ model: modelAt(server.url), prompt: "Hi", maxRetries: 0, onError });
    let text = "";
    for await (const delta of stream.textStream) text += delta;
    assert.equal(text, "ab");
    assert.equal(errors.length, 1);
  });

  it("stops the work when the reader aborts", async () => {
    server.source.play({ tokens: ["x"], isEndless: true, tokenMs: 5 });
    const cancelled = server.source.cancelled;
    const controller = new AbortController();
    const stream = streamText({
      ...{ model: modelAt(server.url), prompt: "Hi", abortSignal: controller.signal },
      ...{ maxRetries: 0, onError: () => {} },
    });
    for await (const part of stream.fullStream) if (part.type === "reasoning-delta") controller.abort();
    for (let tries = 0; tries < 400 && server.source.running > 0; tries++)
      await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(server.source.running, 0);
    assert.ok(server.source.cancelled > cancelled);
  });
});

describe("over a scripted backend", () => {
  let server: ScriptedServer;
  before(async () => {
    server = await scriptedServer(new URL("../../test/fixtures/shell-script.ts", import.meta.url));
  });
  after(() => server.close());

  it("runs a tool loop of two questions, reusing everything that was evaluated", async () => {
    const base = { model: modelAt(server.url), tools: { bash }, stopWhen: isStepCount(5) };
    const question = { role: "user" as const, content: "Write the file." };
    const first = await generateText({ ...base, messages: [question] });
    assert.equal(first.text, `First: the file says "${PROOF}".`);
    const again = { role: "user" as const, content: `Read it ${AGAIN}.` };
    const stream = streamText({ ...base, messages: [question, ...first.responseMessages, again] });
    assert.equal(await stream.text, `Again: the file says "${PROOF}".`);
    assert.equal(server.answers.length, 4);
    for (const [at, answer] of server.answers.slice(1).entries()) {
      const last = server.answers[at];
      assert.equal(answer.reusedTokens, last.promptTokens + last.completionTokens, `request ${at + 2}`);
    }
  });
});

describe("over the nano model", () => {
  let server: ScriptedServer;
  before(async () => {
    const engine = { modelPath: BUNDLED_MODEL_PATH, workerUrl: undefined, ctxTokens: 400, threads: 1 };
    server = await scriptedServer(new URL("file:///none"), { engine, modelId: "nano" });
  });
  after(() => server.close());

  it("streams the same greedy text twice", async () => {
    const run = async () => {
      const stream = streamText({
        ...{ model: modelAt(server.url), prompt: "Tell me of the sea.", temperature: 0, maxOutputTokens: 24 },
        providerOptions: { ds4: { reasoningEffort: "none" } },
      });
      return { text: await stream.text, usage: await stream.usage };
    };
    const first = await run();
    const second = await run();
    assert.ok(first.text.length > 0);
    assert.equal(second.text, first.text);
    assert.ok(second.usage.inputTokenDetails.cacheReadTokens! > 0);
    for (const { prompt } of server.answers) assert.ok(prompt.endsWith("</think>"));
  });

  it("makes an object that the schema allows", async () => {
    const schema = z.object({ colour: z.enum(["red", "green"]), count: z.number().int().min(0).max(9) });
    const { output } = await generateText({
      ...{ model: modelAt(server.url, API_KEY, true), prompt: "Choose.", temperature: 1, seed: 3 },
      ...{ output: Output.object({ schema }), maxOutputTokens: 100, maxRetries: 0 },
      providerOptions: { ds4: { reasoningEffort: "none" } },
    });
    assert.deepEqual(schema.parse(output), output);
  });

  it("makes a call where one is demanded", async () => {
    const inputSchema = z.object({ colour: z.enum(["red", "green"]) });
    const result = await generateText({
      ...{ model: modelAt(server.url), prompt: "Paint.", temperature: 1, seed: 4, maxOutputTokens: 150 },
      ...{
        tools: { paint: tool({ inputSchema }) },
        toolChoice: { type: "tool" as const, toolName: "paint" },
      },
      providerOptions: { ds4: { reasoningEffort: "none" } },
    });
    assert.equal(result.finishReason, "tool-calls");
    assert.equal(result.toolCalls.length, 1);
    assert.deepEqual(inputSchema.parse(result.toolCalls[0].input), result.toolCalls[0].input);
  });
});
