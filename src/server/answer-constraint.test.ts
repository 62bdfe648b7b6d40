import { describe, expect, it } from "vitest";
import { type Json, testServer } from "../../test/fixtures/test-server.ts";
import { CALL_TAGS } from "../dsml/tags.ts";

const messages = [{ role: "user", content: "x" }];
const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
const odd = { type: "object", properties: { list: { type: "array", uniqueItems: true } } };
const tool = (name: string, parameters: Json = schema) => ({
  type: "function",
  function: { name, parameters },
});
const tools = [tool("one"), tool("two")];

/** What the request asks of the engine, and its prompt. */
async function asked(path: string, body: Json) {
  const server = testServer();
  const response = await server.post(path, body);
  expect([response.status, await response.text()]).toEqual([200, expect.anything()]);
  return { constraint: server.source.requests[0].constraint as Json, prompt: server.prompts()[0] };
}

async function refusal(path: string, body: Json): Promise<Json> {
  const server = testServer();
  const response = await server.post(path, body);
  expect(response.status).toBe(400);
  expect(server.source.requests).toEqual([]);
  return ((await response.json()) as Json).error;
}

describe("formats", () => {
  it.each([
    [
      "/v1/chat/completions",
      { messages, response_format: { type: "json_schema", json_schema: { name: "n", schema } } },
    ],
    ["/v1/responses", { input: "x", text: { format: { type: "json_schema", name: "n", schema } } }],
    ["/v1/messages", { max_tokens: 9, messages, output_config: { format: { type: "json_schema", schema } } }],
    ["/api/chat", { messages, format: schema }],
  ])("of %s reach the engine and the prompt", async (path, body) => {
    const { constraint, prompt } = await asked(path, { ...body, model: "nano" });
    expect(constraint).toEqual({ json: { schema } });
    expect(prompt).toContain(
      `## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{"type"`,
    );
  });

  it("of any object are not shown, and text is none", async () => {
    const path = "/v1/chat/completions";
    const { constraint, prompt } = await asked(path, { messages, response_format: { type: "json_object" } });
    expect(constraint).toEqual({ json: { schema: { type: "object" } } });
    expect(prompt).not.toContain("Response Format");
    expect((await asked("/api/chat", { messages, format: "json" })).constraint).toEqual(constraint);
    const raw = { prompt: "x", response_format: { type: "json_object" } };
    expect((await asked("/v1/completions", raw)).constraint).toEqual(constraint);
    expect((await asked(path, { messages, response_format: { type: "text" } })).constraint).toBe(undefined);
  });

  it("leave the choice to call tools where there are some, whatever their schemas", async () => {
    const body = { messages, format: schema, tools: [tool("odd", odd)] };
    const { constraint } = await asked("/api/chat", body);
    expect(constraint.json).toEqual({ schema });
    expect(constraint.calls).toMatchObject({ tools: [{ name: "odd" }], isLenient: true });
  });

  it("that cannot be enforced are refused with the path of the keyword", async () => {
    const format = { type: "json_schema", json_schema: { name: "n", schema: odd } };
    const keyword = "properties.list.uniqueItems";
    const reason = "the keyword uniqueItems is not supported";
    expect(await refusal("/v1/chat/completions", { messages, response_format: format })).toMatchObject({
      param: `response_format.json_schema.schema.${keyword}`,
      message: `response_format.json_schema.schema.${keyword}: ${reason}`,
    });
    const text = { format: { type: "json_schema", name: "n", schema: odd } };
    expect(await refusal("/v1/responses", { input: "x", text })).toMatchObject({
      param: `text.format.schema.${keyword}`,
    });
    const output_config = { format: { type: "json_schema", schema: odd } };
    expect((await refusal("/v1/messages", { max_tokens: 9, messages, output_config })).message).toBe(
      `output_config.format.schema.${keyword}: ${reason}`,
    );
    expect(await refusal("/api/chat", { messages, format: odd })).toBe(`format.${keyword}: ${reason}`);
    const none = { type: "json_schema", json_schema: { name: "n", schema: { enum: [] } } };
    expect((await refusal("/v1/chat/completions", { messages, response_format: none })).message).toContain(
      "no value meets",
    );
  });

  it("are refused for an answer that is already begun", async () => {
    const begun = [...messages, { role: "assistant", content: "{" }];
    const body = { messages: begun, response_format: { type: "json_object" } };
    expect((await refusal("/v1/chat/completions", body)).message).toContain("already begun");
  });
});

describe("tool choices", () => {
  const path = "/v1/chat/completions";

  it("that demand a call say of which tools and how many", async () => {
    const required = await asked(path, { messages, tools, tool_choice: "required" });
    expect(required.constraint.calls).toEqual({
      tools: [
        { name: "one", parameters: schema },
        { name: "two", parameters: schema },
      ],
      maxCalls: 16,
      tags: CALL_TAGS,
      isLenient: false,
    });
    const single = await asked(path, {
      messages,
      tools,
      tool_choice: "required",
      parallel_tool_calls: false,
    });
    expect(single.constraint.calls.maxCalls).toBe(1);
    const named = await asked(path, {
      messages,
      tools,
      tool_choice: { type: "function", function: { name: "two" } },
    });
    expect(named.constraint.calls).toMatchObject({ tools: [{ name: "two" }], maxCalls: 1 });
    expect(named.prompt).toBe(required.prompt);
    const anthropic = { max_tokens: 9, messages, tools: [{ name: "one", input_schema: schema }] };
    const any = { ...anthropic, tool_choice: { type: "any", disable_parallel_tool_use: true } };
    expect((await asked("/v1/messages", any)).constraint.calls).toMatchObject({
      tools: [{ name: "one" }],
      maxCalls: 1,
    });
    const one = { ...anthropic, tool_choice: { type: "tool", name: "one" } };
    expect((await asked("/v1/messages", one)).constraint.calls).toMatchObject({
      tools: [{ name: "one" }],
      maxCalls: 1,
    });
  });

  it("of allowed tools choose among them", async () => {
    const flat = tools.map(({ function: { name, parameters } }) => ({ type: "function", name, parameters }));
    const allowed = [{ type: "function", name: "two" }];
    const must = { type: "allowed_tools", mode: "required", tools: allowed };
    const { constraint } = await asked("/v1/responses", { input: "x", tools: flat, tool_choice: must });
    expect(constraint.calls).toMatchObject({ tools: [{ name: "two" }], maxCalls: 16 });
    const may = await asked("/v1/responses", {
      input: "x",
      tools: flat,
      tool_choice: { ...must, mode: "auto" },
    });
    expect(may.constraint).toBe(undefined);
    expect(may.prompt).toContain('"two"');
    expect(may.prompt).not.toContain('"one"');
  });

  it("of none hide the tools, of auto leave everything free", async () => {
    const none = await asked(path, { messages, tools, tool_choice: "none" });
    expect([none.constraint, none.prompt.includes('"one"')]).toEqual([undefined, false]);
    const auto = await asked(path, { messages, tools });
    expect([auto.constraint, auto.prompt.includes('"one"')]).toEqual([undefined, true]);
  });

  it("are refused for schemas that cannot be enforced, unless the tool is not the one to call", async () => {
    const mixed = [...tools, tool("odd", odd)];
    const at = "tools[2].function.parameters.properties.list.uniqueItems";
    expect(await refusal(path, { messages, tools: mixed, tool_choice: "required" })).toMatchObject({
      param: at,
    });
    await asked(path, {
      messages,
      tools: mixed,
      tool_choice: { type: "function", function: { name: "one" } },
    });
    await asked(path, { messages, tools: mixed });
  });
});
