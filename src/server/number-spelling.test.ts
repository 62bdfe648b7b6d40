// Numbers of tools and calls reach the prompt as the client wrote them: the model was trained on such texts.
import { expect, it } from "vitest";
import { testServer } from "../../test/fixtures/test-server.ts";

const schema =
  '{"type": "object", "properties": {"n": {"type": "number", "minimum": 1.0}}, "multipleOf": 2.0}';
const args = '{"n": 1.0, "deep": [2.0, {"m": 3}]}';
const tool = `{"name": "add", "description": "x", "parameters": ${schema}}`;
const rendered = ['"minimum": 1.0', '"multipleOf": 2.0', 'name="n" string="false">1.0<', '[2.0, {"m": 3}]<'];

it.each([
  [
    "/v1/chat/completions",
    `{"temperature": 1.0, "tools": [{"type": "function", "function": ${tool}}], "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": ${args}}}]},
      {"role": "tool", "tool_call_id": "c", "content": "3"}]}`,
  ],
  [
    "/v1/chat/completions",
    `{"tools": [{"type": "function", "function": ${tool}}], "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments":
      ${JSON.stringify(args)}}}]}, {"role": "tool", "tool_call_id": "c", "content": "3"}]}`,
  ],
  [
    "/v1/messages",
    `{"max_tokens": 100, "tools": [{"name": "add", "input_schema": ${schema}}], "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_c", "name": "add", "input": ${args}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_c", "content": "3"}]}]}`,
  ],
  [
    "/v1/responses",
    `{"tools": [{"type": "function", "name": "add", "parameters": ${schema}}], "input": [{"role": "user", "content": "a"},
      {"type": "function_call", "call_id": "c", "name": "add", "arguments": ${JSON.stringify(args)}},
      {"type": "function_call_output", "call_id": "c", "output": "3"}]}`,
  ],
  [
    "/api/chat",
    `{"stream": false, "tools": [{"type": "function", "function": ${tool}}], "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": ${args}}}]},
      {"role": "tool", "content": "3"}]}`,
  ],
])("%s", async (path, body) => {
  const { post, prompts } = testServer();
  const response = await post(path, body);
  expect(response.status, await response.text()).toBe(200);
  for (const text of rendered) expect(prompts()[0]).toContain(text);
});

it("refuses what is no object, and says so", async () => {
  const { postJson } = testServer();
  for (const [parameters, got] of [
    [[], "array"],
    ["x", "string"],
  ]) {
    const tools = [{ type: "function", function: { name: "f", parameters } }];
    const { error } = await postJson("/v1/chat/completions", {
      tools,
      messages: [{ role: "user", content: "a" }],
    });
    expect(error.message).toBe(`tools[0].function.parameters: expected object, got ${got}`);
  }
});
