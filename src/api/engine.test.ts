import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { nanoModelPath } from "../../test/fixtures/nano-model.ts";
import { AnswerRunner } from "../server/answer-run.ts";
import { createApp } from "../server/app.ts";
import { type HttpServer, listen } from "../server/http-server.ts";
import { ServerMetrics } from "../server/metrics.ts";
import { ALL_ROUTES } from "../server/routes/all-routes.ts";
import { SILENT_LOG } from "../server/server-log.ts";
import { ServerState } from "../server/server-state.ts";
import type { ChatMessageParam, ChatToolParam } from "./chat-params.ts";
import { Engine } from "./engine.ts";
import { openModel } from "./open-model.ts";
import { servedModel } from "./served-model.ts";

let engine: Engine;
let http: HttpServer;
let openai: OpenAI;

/** A server on the same scheduler, so that both ways meet the same model. */
async function serve(): Promise<HttpServer> {
  const metrics = new ServerMetrics();
  const state = new ServerState();
  const model = servedModel(openModel(nanoModelPath()), engine.scheduler);
  state.serve(new AnswerRunner({ model, maxQueued: 8, metrics, log: SILENT_LOG, onFault: () => {} }));
  return listen(createApp({ version: "1", metrics, state }, ALL_ROUTES), { host: "127.0.0.1", port: 0 });
}

beforeAll(async () => {
  engine = await Engine.open({ model: nanoModelPath(), backend: "cpu", ctxTokens: 1024 });
  http = await serve();
  openai = new OpenAI({ baseURL: `${http.url}/v1`, apiKey: "x", maxRetries: 0 });
});
afterAll(async () => {
  http.destroy();
  await engine.close();
});

const question = { role: "user" as const, content: "What is the capital of France?" };
const ask = { model: "m", messages: [question], temperature: 0, reasoning_effort: "none" as const };
/** Asks for a long answer: the stop tokens are made impossible. */
const endless = () => {
  const logit_bias = Object.fromEntries(engine.tokenizer.stopIds.map((id) => [String(id), -100]));
  return { ...ask, logit_bias };
};
const tool: ChatToolParam = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Get the weather in a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
const until = async (isTrue: () => Promise<boolean>) => {
  for (let tries = 0; tries < 400; tries++) {
    if (await isTrue()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  expect.unreachable("it never became true");
};
const isIdle = async () => (await engine.stats()).slots.every(({ requestId }) => requestId === undefined);

describe("chat.completions.create", () => {
  it("answers as the HTTP server does, whole and streamed", async () => {
    const ours = await engine.chat.completions.create(ask);
    const theirs = await openai.chat.completions.create(ask);
    expect(ours.choices).toEqual(theirs.choices);
    expect(ours.choices[0].message.content).toBe("The capital of France is Paris.");
    expect(Object.keys(ours).sort()).toEqual(
      Object.keys(theirs)
        .filter((key) => key[0] !== "_")
        .sort(),
    );
    const request = {
      ...ask,
      stream: true as const,
      stream_options: { include_usage: true },
    };
    const [streamed, served] = await Promise.all([
      engine.chat.completions.create(request),
      openai.chat.completions.create(request),
    ]);
    const chunks = [];
    for await (const { choices } of streamed) chunks.push(choices);
    const servedChunks = [];
    for await (const { choices } of served) servedChunks.push(choices);
    expect(chunks).toEqual(servedChunks);
    expect(chunks.at(-1)).toEqual([]);
    const { choices } = await engine.chat.completions.create({ ...ask, logprobs: true, top_logprobs: 2 });
    const [first] = choices[0].logprobs!.content;
    expect(first).toMatchObject({ token: "The", logprob: expect.any(Number) });
    expect(first.top_logprobs).toHaveLength(2);
  });

  it("calls tools, and re-reads only what is new on the next turn", async () => {
    const messages: ChatMessageParam[] = [{ role: "user", content: "What is the weather in Paris?" }];
    const request = { ...ask, messages, tools: [tool] };
    const first = await engine.chat.completions.create(request);
    const [{ message, finish_reason }] = first.choices;
    expect(finish_reason).toBe("tool_calls");
    expect(message.tool_calls).toMatchObject([{ type: "function", function: { name: "get_weather" } }]);
    const [call] = message.tool_calls!;
    expect(JSON.parse(call.function.arguments)).toEqual({ city: "Paris" });
    messages.push(message, { role: "tool", tool_call_id: call.id, content: '{"weather": "sunny"}' });
    const { choices, usage } = await engine.chat.completions.create(request);
    expect(choices[0].message.content).not.toBe("");
    const known = first.usage.prompt_tokens + first.usage.completion_tokens;
    expect(usage.prompt_tokens_details.cached_tokens).toBeGreaterThanOrEqual(known - 4);
  });

  it("keeps a schema, whatever the seed", async () => {
    const schema = {
      type: "object",
      properties: { ok: { type: "boolean" }, n: { type: "integer", minimum: 1, maximum: 9 } },
      required: ["ok", "n"],
      additionalProperties: false,
    };
    const response_format = {
      type: "json_schema" as const,
      json_schema: { name: "r", strict: true, schema },
    };
    for (let seed = 0; seed < 4; seed++) {
      const request = { ...ask, temperature: 1.5, seed, response_format };
      const { choices } = await engine.chat.completions.create(request);
      const { ok, n, ...rest } = JSON.parse(choices[0].message.content!);
      expect([typeof ok, Number.isInteger(n) && n >= 1 && n <= 9, rest]).toEqual(["boolean", true, {}]);
    }
    const tools = [tool];
    const { choices } = await engine.chat.completions.create({ ...ask, tools, tool_choice: "required" });
    expect(choices[0].finish_reason).toBe("tool_calls");
  });

  it("answers many requests at once", async () => {
    const cities = ["France", "Italy", "Spain", "Japan", "Norway"];
    const answers = await Promise.all(
      cities.map(async (country) => {
        const content = `What is the capital of ${country}?`;
        const { choices } = await engine.chat.completions.create({
          ...ask,
          messages: [{ role: "user", content }],
        });
        return choices[0].message.content;
      }),
    );
    for (const [at, country] of cities.entries()) expect(answers[at]).toContain(country);
  });
});

describe("ending a request", () => {
  it("frees the slot when the loop is left", async () => {
    const stream = await engine.chat.completions.create({ ...endless(), stream: true });
    let count = 0;
    for await (const _ of stream) if (++count === 5) break;
    expect(stream.controller.signal.aborted).toBe(true);
    await until(isIdle);
    const { completionTokens } = (await engine.stats()).counters;
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect((await engine.stats()).counters.completionTokens).toBe(completionTokens);
  });

  it("throws `cancelled` after an abort by the signal or the stream's controller", async () => {
    const controller = new AbortController();
    const stream = await engine.chat.completions.create({ ...endless(), stream: true }, controller);
    const own = await engine.chat.completions.create({ ...endless(), stream: true });
    const whole = engine.chat.completions.create(endless(), { signal: controller.signal });
    const read = async (chunks: typeof stream) => {
      let count = 0;
      for await (const _ of chunks) {
        if (++count !== 5) continue;
        if (chunks === own) own.controller.abort();
        else controller.abort();
      }
    };
    await expect(read(own)).rejects.toMatchObject({ code: "cancelled" });
    await expect(read(stream)).rejects.toMatchObject({ code: "cancelled" });
    await expect(whole).rejects.toMatchObject({ code: "cancelled" });
    await expect(engine.chat.completions.create(ask, controller)).rejects.toMatchObject({
      code: "cancelled",
    });
    await until(isIdle);
  });

  it("keeps what was read of a prompt that is cancelled (case 81)", async () => {
    await using slow = await Engine.open({
      model: nanoModelPath(),
      ctxTokens: 2048,
      slots: 1,
      chunkTokens: 16,
    });
    const messages = [{ role: "user" as const, content: "many words to read ".repeat(60) }];
    const request = { ...ask, messages, max_tokens: 4 };
    const controller = new AbortController();
    const first = slow.chat.completions.create(request, controller);
    const refused = expect(first).rejects.toMatchObject({ code: "cancelled" });
    await until(async () => (await slow.stats()).slots[0].tokens >= 64);
    controller.abort();
    await refused;
    const { completionTokens } = (await slow.stats()).counters;
    expect(completionTokens).toBe(0);
    const { usage } = await slow.chat.completions.create(request);
    expect(usage.prompt_tokens_details.cached_tokens).toBeGreaterThanOrEqual(64);
    expect(usage.prompt_tokens_details.cached_tokens).toBeLessThan(usage.prompt_tokens);
  });

  it("frees the slot of a stream that is left before it is read", async () => {
    const stream = await engine.chat.completions.create({ ...endless(), stream: true });
    await stream.return();
    await until(isIdle);
    const unread = await engine.chat.completions.create({ ...endless(), stream: true });
    unread.controller.abort();
    await until(isIdle);
  });
});

describe("errors and closing", () => {
  it("refuses what is wrong with typed errors, before anything runs", async () => {
    const create = (params: object, stream?: boolean) =>
      engine.chat.completions.create({ ...ask, ...params, stream } as never);
    for (const stream of [false, true]) {
      await expect(create({ temperature: 1e9 }, stream)).rejects.toMatchObject({
        name: "RequestError",
        code: "request",
        param: "temperature",
      });
      await expect(create({ messages: [] }, stream)).rejects.toMatchObject({
        code: "request",
        param: "messages",
      });
      const long = [{ role: "user", content: "word ".repeat(2000) }];
      await expect(create({ messages: long }, stream)).rejects.toMatchObject({
        code: "context-full",
        capacityTokens: 1024,
      });
    }
    const bad = [
      { role: "assistant", tool_calls: [{ id: "c", function: { name: "f", arguments: "1" } }] },
      question,
    ];
    await expect(create({ messages: bad })).rejects.toMatchObject({ code: "template" });
    await expect(Engine.open({ model: "/no/such.gguf" })).rejects.toMatchObject({ code: "usage" });
    await expect(Engine.open({ signal: AbortSignal.abort() })).rejects.toMatchObject({ code: "cancelled" });
  });

  it("refuses more than may wait", async () => {
    await using small = await Engine.open({
      model: nanoModelPath(),
      ctxTokens: 256,
      slots: 1,
      queueLimit: 1,
    });
    const outcomes = await Promise.allSettled([1, 2, 3].map(() => small.chat.completions.create(ask)));
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected"]);
    expect(outcomes[2]).toMatchObject({ reason: { code: "queue-full", queueLimit: 1 } });
  });

  it("ends running answers when it is closed, and answers nothing afterwards", async () => {
    const other = await Engine.open({ model: nanoModelPath(), ctxTokens: 1024, modelId: "mine" });
    expect((await other.models.list()).data.map(({ id }) => id)).toEqual(["mine"]);
    const running = other.chat.completions.create(endless());
    const refused = expect(running).rejects.toMatchObject({ code: "cancelled" });
    await other.close();
    await other.close();
    await refused;
    await expect(other.chat.completions.create(ask)).rejects.toMatchObject({ code: "session" });
  });

  it("finds saved states and calls again in a later engine", async () => {
    const { mkdtempSync, rmSync } = await import("node:fs");
    const { tmpdir } = await import("node:os");
    const { join } = await import("node:path");
    const kvDiskFolder = mkdtempSync(join(tmpdir(), "ds4-api-"));
    const content = `${"one two three four five ".repeat(120)} What is the capital of France?`;
    const messages: ChatMessageParam[] = [{ role: "user", content }];
    const open = () => Engine.open({ model: nanoModelPath(), ctxTokens: 2048, kvDiskFolder });
    try {
      {
        await using first = await open();
        const { choices } = await first.chat.completions.create({ ...ask, messages, max_tokens: 8 });
        messages.push(choices[0].message, question);
      }
      await using second = await open();
      const { usage } = await second.chat.completions.create({ ...ask, messages, max_tokens: 8 });
      expect(usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(500);
    } finally {
      rmSync(kvDiskFolder, { recursive: true, force: true });
    }
  });
});

describe("models", () => {
  it("lists the loaded model as the server does", async () => {
    const list = await engine.models.list();
    const served = await openai.models.list();
    const { created: _, created_at: __, ...model } = list.data[0];
    expect(served.data[0]).toMatchObject(model);
    const ids = [];
    for await (const { id } of list) ids.push(id);
    expect(ids).toEqual(list.data.map(({ id }) => id));
    expect(await engine.models.retrieve(ids[0])).toEqual(list.data[0]);
    await expect(engine.models.retrieve("gpt")).rejects.toMatchObject({ code: "request", param: "model" });
  });
});
