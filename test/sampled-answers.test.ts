// What the model sampled stays in the cache whatever its text would be tokenized to: the real scheduler and server over
// a script.
import OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type ScriptedServer, scriptedServer } from "./fixtures/scripted-server.ts";

let server: ScriptedServer;
let openai: OpenAI;
beforeAll(async () => {
  server = await scriptedServer(new URL("./fixtures/letters-script.ts", import.meta.url));
  openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "x", maxRetries: 0 });
});
afterAll(() => server.close());

it.each([
  ["thinking off", { reasoning_effort: "none" as const }, true],
  ["thinking with tools", { tools: [{ type: "function" as const, function: { name: "f" } }] }, true],
  [
    "thinking with tools, reasoning not sent back",
    { tools: [{ type: "function" as const, function: { name: "g" } }] },
    false,
  ],
])("reuses an answer's own tokens on the next turn: %s (case 99)", async (_, request, sendsReasoning) => {
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "Say hello" }];
  let known = 0;
  for (let turn = 0; turn < 4; turn++) {
    const { choices, usage } = await openai.chat.completions.create({ model: "m", messages, ...request });
    const { content } = choices[0].message;
    expect(content).toBe("hello");
    expect(usage!.completion_tokens).toBeGreaterThanOrEqual(5);
    expect(usage!.prompt_tokens_details!.cached_tokens).toBe(known);
    known = usage!.prompt_tokens + usage!.completion_tokens;
    messages.push(sendsReasoning ? choices[0].message : { role: "assistant", content });
    messages.push({ role: "user", content: "Again" });
  }
});
