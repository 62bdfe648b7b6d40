// The Vercel AI SDK against the server, over scripts, over a scripted backend and over the nano model.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, isStepCount, Output, streamText, tool } from "ai";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { BUNDLED_MODEL_PATH } from "../../src/api/open-model.ts";
import { type ScriptedServer, scriptedServer } from "../fixtures/scripted-server.ts";
import { AGAIN } from "../fixtures/shell-script.ts";
import { callTokens, testHttpServer } from "../fixtures/test-server.ts";

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
  beforeAll(async () => {
    server = await testHttpServer({ apiKeys: [API_KEY] });
  });
  afterAll(async () => {
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
    expect(text).toBe("Hello world!");
    const streamed = {
      text: await stream.text,
      reasoningText: await stream.reasoningText,
      finishReason: await stream.finishReason,
      usage: await stream.usage,
    };
    for (const result of [whole, streamed]) {
      expect(result.text).toBe("Hello world!");
      expect(result.reasoningText).toBe("Hm yes");
      expect(result.finishReason).toBe("stop");
      expect(result.usage.outputTokens).toBe(tokens.length);
      expect(result.usage.inputTokenDetails.cacheReadTokens).toBe(3);
      expect(result.usage.outputTokenDetails.reasoningTokens).toBe(3);
      expect(result.usage.inputTokens).toBeGreaterThan(3);
    }
  });

  it("reads calls of tools, several in one answer", async () => {
    const call = callTokens("bash", "command", "make 2>&1");
    server.source.play({ tokens: ["</think>", "Running", ".", ...call] });
    const tools = { bash: tool({ inputSchema: z.object({ command: z.string() }) }) };
    const result = await generateText({ model: modelAt(server.url), prompt: "Hi", tools });
    expect(result.finishReason).toBe("tool-calls");
    expect(result.toolCalls.map(({ toolName, input }) => ({ toolName, input }))).toEqual([
      { toolName: "bash", input: { command: "make 2>&1" } },
    ]);
  });

  it("ends at the limit, and says so", async () => {
    server.source.play({ tokens });
    const result = await generateText({ model: modelAt(server.url), prompt: "Hi", maxOutputTokens: 4 });
    expect(result.finishReason).toBe("length");
    expect(result.text).toBe("Hello");
  });

  it("raises its typed errors with the server's words", async () => {
    const failure = async (run: () => PromiseLike<unknown>) => {
      const error: unknown = await run().then(
        () => undefined,
        (reason) => reason,
      );
      if (APICallError.isInstance(error)) return error;
      throw new Error(`expected an APICallError, found ${error}`);
    };
    const base = { prompt: "Hi", maxRetries: 0 };
    const denied = await failure(() => generateText({ ...base, model: modelAt(server.url, "sk-wrong") }));
    expect(denied.statusCode).toBe(401);
    expect(denied.isRetryable).toBe(false);
    const wrong = await failure(() =>
      generateText({ ...base, model: modelAt(server.url), temperature: 1e9 }),
    );
    expect(wrong.statusCode).toBe(400);
    expect(wrong.message).toMatch(/temperature/);
    const long = await failure(() =>
      generateText({ ...base, model: modelAt(server.url), prompt: "word ".repeat(9000) }),
    );
    expect(long.message).toMatch(/context length/);
  });

  it("raises an error in the middle of a stream", async () => {
    server.source.play({ tokens: ["</think>", "a", "b", "c"], failAt: 3 });
    const errors: unknown[] = [];
    const onError = ({ error }: { error: unknown }) => void errors.push(error);
    const stream = streamText({ model: modelAt(server.url), prompt: "Hi", maxRetries: 0, onError });
    let text = "";
    for await (const delta of stream.textStream) text += delta;
    expect(text).toBe("ab");
    expect(errors.length).toBe(1);
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
    await vi.waitFor(() => expect(server.source.running).toBe(0), { timeout: 4000, interval: 10 });
    expect(server.source.cancelled).toBeGreaterThan(cancelled);
  });
});

describe("over a scripted backend", () => {
  let server: ScriptedServer;
  beforeAll(async () => {
    server = await scriptedServer(new URL("../fixtures/shell-script.ts", import.meta.url));
  });
  afterAll(() => server.close());

  it("runs a tool loop of two questions, reusing everything that was evaluated", async () => {
    const base = { model: modelAt(server.url), tools: { bash }, stopWhen: isStepCount(5) };
    const question = { role: "user" as const, content: "Write the file." };
    const first = await generateText({ ...base, messages: [question] });
    expect(first.text).toBe(`First: the file says "${PROOF}".`);
    const again = { role: "user" as const, content: `Read it ${AGAIN}.` };
    const stream = streamText({ ...base, messages: [question, ...first.responseMessages, again] });
    expect(await stream.text).toBe(`Again: the file says "${PROOF}".`);
    expect(server.answers.length).toBe(4);
    for (const [at, answer] of server.answers.slice(1).entries()) {
      const last = server.answers[at];
      expect(answer.reusedTokens, `request ${at + 2}`).toBe(last.promptTokens + last.completionTokens);
    }
  });
});

describe("over the nano model", () => {
  let server: ScriptedServer;
  beforeAll(async () => {
    const engine = { modelPath: BUNDLED_MODEL_PATH, workerUrl: undefined, ctxTokens: 400, threads: 1 };
    server = await scriptedServer(new URL("file:///none"), { engine, modelId: "nano" });
  });
  afterAll(() => server.close());

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
    expect(first.text).not.toBe("");
    expect(second.text).toBe(first.text);
    expect(second.usage.inputTokenDetails.cacheReadTokens).toBeGreaterThan(0);
    for (const { prompt } of server.answers) expect(prompt.endsWith("</think>")).toBe(true);
  });

  it("makes an object that the schema allows", async () => {
    const schema = z.object({ colour: z.enum(["red", "green"]), count: z.number().int().min(0).max(9) });
    const { output } = await generateText({
      ...{ model: modelAt(server.url, API_KEY, true), prompt: "Choose.", temperature: 1, seed: 3 },
      ...{ output: Output.object({ schema }), maxOutputTokens: 100, maxRetries: 0 },
      providerOptions: { ds4: { reasoningEffort: "none" } },
    });
    expect(schema.parse(output)).toEqual(output);
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
    expect(result.finishReason).toBe("tool-calls");
    expect(result.toolCalls.length).toBe(1);
    expect(inputSchema.parse(result.toolCalls[0].input)).toEqual(result.toolCalls[0].input);
  });
});
