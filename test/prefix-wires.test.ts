// What coding agents rely on: over every wire, each request of a session begins with what is already evaluated. The
// scheduler, the tokenizer, the parser and the HTTP server are the real ones.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type ScriptedServer, scriptedServer } from "./fixtures/scripted-server.ts";
import { AGAIN } from "./fixtures/shell-script.ts";
import type { Json } from "./fixtures/test-server.ts";

let server: ScriptedServer;
beforeAll(async () => {
  server = await scriptedServer(new URL("./fixtures/shell-script.ts", import.meta.url));
});
afterAll(() => server.close());

const rules = "You are an agent in a folder. ".repeat(60);
const parameters = {
  type: "object",
  properties: { command: { type: "string" }, description: { type: "string" } },
  required: ["command"],
};
const result = 'proof 42 of "folder"'.replaceAll('"', "");
const questions = ["Write the file.", `Read it ${AGAIN}.`];

async function post(path: string, body: object): Promise<Json> {
  const response = await fetch(`${server.url}${path}`, {
    method: "POST",
    body: JSON.stringify({ model: "deepseek-v4-flash", ...body }),
    headers: { "content-type": "application/json" },
  });
  const answer: Json = await response.json();
  expect(response.status, JSON.stringify(answer)).toBe(200);
  return answer;
}

/** Asks both questions, running each call; returns the texts of the ends and the client's cached token counts. */
async function chat() {
  const tools = [{ type: "function", function: { name: "bash", parameters } }];
  const messages: Json[] = [{ role: "system", content: `chat: ${rules}` }];
  const seen = { texts: [] as string[], cached: [] as number[] };
  for (const question of questions) {
    messages.push({ role: "user", content: question });
    for (;;) {
      const { choices, usage } = await post("/v1/chat/completions", { messages, tools });
      seen.cached.push(usage.prompt_tokens_details.cached_tokens);
      const { message } = choices[0];
      messages.push(message);
      if (message.tool_calls === undefined) {
        seen.texts.push(message.content);
        break;
      }
      for (const { id } of message.tool_calls)
        messages.push({ role: "tool", tool_call_id: id, content: result });
    }
  }
  return seen;
}

async function messages() {
  const tools = [{ name: "bash", input_schema: parameters }];
  const thinking = { type: "adaptive" };
  const turns: Json[] = [];
  const seen = { texts: [] as string[], cached: [] as number[] };
  for (const question of questions) {
    turns.push({ role: "user", content: question });
    for (;;) {
      const body = { system: `messages: ${rules}`, messages: turns, tools, thinking, max_tokens: 4000 };
      const { content, usage } = await post("/v1/messages", body);
      seen.cached.push(usage.cache_read_input_tokens);
      turns.push({ role: "assistant", content });
      const calls = content.filter((block: Json) => block.type === "tool_use");
      if (calls.length === 0) {
        seen.texts.push(content.at(-1).text);
        break;
      }
      const results = calls.map(({ id }: Json) => ({
        type: "tool_result",
        tool_use_id: id,
        content: result,
      }));
      turns.push({ role: "user", content: results });
    }
  }
  return seen;
}

async function responses() {
  const tools = [{ type: "function", name: "bash", parameters, strict: false }];
  const input: Json[] = [{ role: "developer", content: `responses: ${rules}` }];
  const seen = { texts: [] as string[], cached: [] as number[] };
  for (const question of questions) {
    input.push({ role: "user", content: [{ type: "input_text", text: question }] });
    for (;;) {
      const { output, usage } = await post("/v1/responses", { input, tools, store: false });
      seen.cached.push(usage.input_tokens_details.cached_tokens);
      input.push(...output);
      const calls = output.filter((item: Json) => item.type === "function_call");
      if (calls.length === 0) {
        seen.texts.push(output.at(-1).content[0].text);
        break;
      }
      for (const { call_id } of calls) input.push({ type: "function_call_output", call_id, output: result });
    }
  }
  return seen;
}

describe.each([
  ["chat completions", chat],
  ["messages", messages],
  ["responses", responses],
])("a session over %s", (_, run) => {
  it("reuses everything that was evaluated, and says so", async () => {
    server.answers.length = 0;
    const before = await server.metrics();
    const { texts, cached } = await run();
    const after = await server.metrics();
    expect(texts).toEqual([`First: the file says "${result}".`, `Again: the file says "${result}".`]);
    const records = server.answers;
    expect(records).toHaveLength(4);
    expect(records.map(({ reusedTokens }) => reusedTokens)).toEqual(cached);
    for (const [at, record] of records.slice(1).entries()) {
      const before = records[at];
      // All of the last prompt and its answer, but for the end mark.
      expect(record.reusedTokens).toBe(before.promptTokens + before.completionTokens);
      expect(record.reusedFrom).toBe("slot");
      expect(record.prompt.startsWith(before.prompt)).toBe(true);
    }
    const grown = (name: string) => after.get(name)! - before.get(name)!;
    const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
    expect(grown("ds4_prompt_tokens_reused_total")).toBe(sum(cached));
    expect(grown("ds4_prompt_tokens_total")).toBe(sum(records.map(({ promptTokens }) => promptTokens)));
  });
});
