// Answers held to a format or to calls, over the bundled model at a temperature at which it writes nothing sensible:
// only the constraint makes them valid. Asked by the official clients.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Any, isValid } from "../fixtures/schema-oracle.ts";
import { killServers, type ServerProcess, startServer } from "../fixtures/server-process.ts";

let server: ServerProcess;
let anthropic: Anthropic;
beforeAll(async () => {
  server = await startServer(["--threads", "1"]);
  anthropic = new Anthropic({ baseURL: server.url, apiKey: "x", maxRetries: 0 });
}, 600_000);
afterAll(killServers);

const messages = [{ role: "user" as const, content: "Who wrote the first program?" }];
/** Everything in it is bounded, so that every answer ends. */
const person = {
  type: "object",
  properties: {
    name: { type: "string", minLength: 1, maxLength: 12 },
    age: { type: "integer", minimum: 0, maximum: 150 },
    height: { type: "number", exclusiveMinimum: 0, maximum: 3 },
    code: { type: "string", pattern: "^[A-Z]{2}-\\d{3}$" },
    mood: { enum: ["good", "bad", null] },
    tags: { type: "array", items: { type: "string", maxLength: 6 }, minItems: 1, maxItems: 3 },
    parent: {
      anyOf: [
        { type: "null" },
        {
          type: "object",
          properties: { ok: { type: "boolean" } },
          required: ["ok"],
          additionalProperties: false,
        },
      ],
    },
  },
  required: ["name", "age", "height", "code", "mood", "tags", "parent"],
  additionalProperties: false,
};
const ask = { model: "m", messages, temperature: 1.5, reasoning_effort: "none" as const };
const seeds = Array.from({ length: 20 }, (_, seed) => seed);
const weather = {
  type: "object",
  properties: {
    city: { type: "string", maxLength: 10 },
    days: { type: "integer", minimum: 1, maximum: 9 },
    unit: { enum: ["C", "F"] },
  },
  required: ["city", "days"],
};
const schemas: Record<string, Any> = { get_weather: weather, get_time: { type: "object", properties: {} } };
const tools = Object.entries(schemas).map(([name, parameters]) => ({
  type: "function" as const,
  function: { name, parameters },
}));

function expectValid(text: string | null, schema: Any): void {
  const value = JSON.parse(text!);
  expect([text, isValid([schema], value, schema)]).toEqual([text, true]);
}

describe("formats", () => {
  it("hold for every seed, whole and streamed (case 103)", async () => {
    const response_format = {
      type: "json_schema" as const,
      json_schema: { name: "person", schema: person, strict: true },
    };
    const texts = new Set<string>();
    for (const seed of seeds) {
      const body = { ...ask, seed, response_format };
      const { choices } = await server.openai.chat.completions.create(body);
      expect(choices[0].finish_reason).toBe("stop");
      expectValid(choices[0].message.content, person);
      texts.add(choices[0].message.content!);
      if (seed % 10 === 0) {
        const streamed = await server.openai.chat.completions.stream(body).finalContent();
        expect(streamed).toBe(choices[0].message.content);
      }
    }
    expect(texts.size).toBe(seeds.length);
  }, 600_000);

  it("hold for what has no bounds, if it comes to an end", async () => {
    const properties = { name: { type: "string" }, n: { type: "integer" } };
    const free = { type: "object", properties, required: ["name", "n"], additionalProperties: false };
    for (const seed of seeds.slice(0, 6)) {
      const json_schema = { name: "e", strict: true, schema: free };
      const body = {
        ...ask,
        seed,
        max_tokens: 100,
        response_format: { type: "json_schema" as const, json_schema },
      };
      const { choices } = await server.openai.chat.completions.create(body);
      if (choices[0].finish_reason === "stop") expectValid(choices[0].message.content, free);
      else expect(choices[0].finish_reason).toBe("length"); // a string without bounds may go on
    }
  }, 600_000);

  it("begin after the thinking, in the other APIs too", async () => {
    const thinking = { type: "enabled" as const, budget_tokens: 12 };
    const format = { type: "json_schema" as const, schema: person };
    for (const seed of seeds.slice(0, 2)) {
      const response_format = { type: "json_object" as const };
      const body = { ...ask, reasoning_effort: undefined, thinking, seed, response_format, max_tokens: 200 };
      const { choices, usage } = await server.openai.chat.completions.create(body);
      expect(usage!.completion_tokens_details!.reasoning_tokens).toBeGreaterThan(0);
      const { content } = choices[0].message;
      if (choices[0].finish_reason === "stop") expectValid(content, { type: "object" });
      else expect([choices[0].finish_reason, content![0]]).toEqual(["length", "{"]);
    }
    const base = { model: "m", messages, max_tokens: 600, temperature: 1 };
    const message = await anthropic.messages.create({ ...base, thinking, output_config: { format } });
    expect(message.stop_reason).toBe("end_turn");
    const text = message.content.find((block) => block.type === "text");
    expectValid(text!.text, person);
    const response = await server.openai.responses.create({
      ...{ model: "m", input: "x", temperature: 1.5, reasoning: { effort: "none" } },
      text: { format: { ...format, name: "person", strict: true } },
    });
    expectValid(response.output_text, person);
    const ollama = await fetch(`${server.url}/api/chat`, {
      method: "POST",
      body: JSON.stringify({
        messages,
        format: person,
        stream: false,
        think: false,
        options: { temperature: 1.5 },
      }),
    });
    expectValid(((await ollama.json()) as Any).message.content, person);
    const raw = { prompt: "x", response_format: { type: "json_schema", json_schema: { schema: person } } };
    const completion = await server.openai.completions.create({ model: "m", temperature: 1.5, ...raw });
    expectValid(completion.choices[0].text, person);
  }, 600_000);

  it("are cut by max_tokens, and refused with the path of what is not supported", async () => {
    const json_schema = { name: "p", schema: person };
    const response_format = { type: "json_schema" as const, json_schema };
    const { choices } = await server.openai.chat.completions.create({
      ...ask,
      response_format,
      max_tokens: 5,
    });
    expect(choices[0].finish_reason).toBe("length");
    const schema = { type: "object", properties: { a: { not: {} } } };
    const wrong = server.openai.chat.completions.create({
      ...ask,
      response_format: { type: "json_schema", json_schema: { name: "p", schema } },
    });
    await expect(wrong).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    await expect(wrong).rejects.toMatchObject({
      param: "response_format.json_schema.schema.properties.a.not",
    });
  }, 60_000);
});

describe("tool choices", () => {
  it("of a required tool make calls with arguments of its schema", async () => {
    const names = new Set<string>();
    for (const seed of seeds.slice(0, 8)) {
      const body = { ...ask, seed, tools, tool_choice: "required" as const };
      const { choices } = await server.openai.chat.completions.create(body);
      const { finish_reason, message } = choices[0];
      expect([finish_reason, message.content]).toEqual(["tool_calls", null]);
      for (const call of message.tool_calls!) {
        if (call.type !== "function") throw new Error("another kind of call");
        names.add(call.function.name);
        expectValid(call.function.arguments, schemas[call.function.name]);
      }
    }
    expect(names).toContain("get_weather");
  }, 600_000);

  it("of a named tool call it once, with and without thinking, in every API (case 60)", async () => {
    const one = (calls: { name: string; args: string }[]) => {
      expect(calls.map(({ name }) => name)).toEqual(["get_weather"]);
      expectValid(calls[0].args, weather);
    };
    for (const seed of seeds.slice(0, 4)) {
      const tool_choice = { type: "function" as const, function: { name: "get_weather" } };
      const thinking =
        seed % 2 ? { thinking: { type: "enabled", budget_tokens: 8 }, reasoning_effort: undefined } : {};
      const body = { ...ask, seed, tools, tool_choice, ...thinking };
      const { choices } = await server.openai.chat.completions.create(body);
      const calls = choices[0].message.tool_calls!;
      one(calls.map((call) => (call as Any).function).map(({ name, arguments: args }) => ({ name, args })));
    }
    const message = await anthropic.messages
      .stream({
        ...{ model: "m", max_tokens: 600, messages, temperature: 1 },
        tools: Object.entries(schemas).map(([name, input_schema]) => ({ name, input_schema })),
        tool_choice: { type: "tool", name: "get_weather" },
      })
      .finalMessage();
    expect(message.stop_reason).toBe("tool_use");
    one(
      message.content
        .map((block) => block as Any)
        .map(({ name, input }) => ({ name, args: JSON.stringify(input) })),
    );
    const response = await server.openai.responses.create({
      ...{ model: "m", input: "x", temperature: 1.5, reasoning: { effort: "none" } },
      tools: Object.entries(schemas).map(([name, parameters]) => ({
        type: "function",
        name,
        parameters,
        strict: true,
      })),
      tool_choice: {
        type: "allowed_tools",
        mode: "required",
        tools: [{ type: "function", name: "get_weather" }],
      },
      parallel_tool_calls: false,
    });
    one(response.output.map((item) => item as Any).map(({ name, arguments: args }) => ({ name, args })));
  }, 600_000);
});
