import { expect, it } from "vitest";
import { callTokens, testServer, tokenizer } from "../../test/fixtures/test-server.ts";

const bash = {
  type: "function",
  function: { name: "bash", parameters: { type: "object", properties: { command: { type: "string" } } } },
};
// Three newlines before the block: not how the template would write it.
const call = ["\n", ...callTokens("bash", "command", "ls")];
const sampled = ["Why", "</think>", ...call];
const messages = [{ role: "user", content: "List" }];

const idsOf = (tokens: readonly string[]) =>
  tokens.flatMap((text) => tokenizer.specialId(text) ?? [...tokenizer.encode(text)]);

it.each(["chat", "messages", "responses"] as const)(
  "a call sent back over %s is the text that was sampled (case 98)",
  async (api) => {
    const { postJson, prompts } = testServer({ scripts: [{ tokens: sampled }] });
    if (api === "chat") {
      const { choices } = await postJson("/v1/chat/completions", { messages, tools: [bash] });
      const [{ message }] = choices;
      const history = [
        ...messages,
        message,
        { role: "tool", tool_call_id: message.tool_calls[0].id, content: "a" },
      ];
      await postJson("/v1/chat/completions", { messages: history, tools: [bash] });
    } else if (api === "messages") {
      const base = {
        thinking: { type: "adaptive" },
        tools: [{ name: "bash", input_schema: bash.function.parameters }],
      };
      const { content } = await postJson("/v1/messages", { ...base, messages });
      const result = { type: "tool_result", tool_use_id: content.at(-1).id, content: "a" };
      const history = [...messages, { role: "assistant", content }, { role: "user", content: [result] }];
      await postJson("/v1/messages", { ...base, messages: history });
    } else {
      const tools = [{ type: "function", ...bash.function }];
      const { output } = await postJson("/v1/responses", { input: messages, tools });
      const result = { type: "function_call_output", call_id: output.at(-1).call_id, output: "a" };
      await postJson("/v1/responses", { input: [...messages, ...output, result], tools });
    }
    const [first, second] = prompts();
    expect(second.startsWith(first + sampled.join(""))).toBe(true);
  },
);

it("continues with the very tokens, marks as marks", async () => {
  const { postJson, source } = testServer({ scripts: [{ tokens: sampled }] });
  const { choices } = await postJson("/v1/chat/completions", { messages, tools: [bash] });
  const [{ message }] = choices;
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "a" };
  await postJson("/v1/chat/completions", { messages: [...messages, message, result], tools: [bash] });
  const [first, second] = source.requests.map(({ promptTokens }) => [...promptTokens]);
  const mark = tokenizer.specialId("｜DSML｜");
  const count = (ids: number[]) => ids.filter((id) => id === mark).length;
  expect(second.slice(0, first.length)).toEqual(first);
  expect(count(second) - count(first)).toBe(count(idsOf(sampled)));
});

it("renders by the book what it does not know: other ids, a part of an answer's calls", async () => {
  const { postJson, prompts } = testServer({ scripts: [{ tokens: sampled }] });
  const { choices } = await postJson("/v1/chat/completions", { messages, tools: [bash] });
  const [{ message }] = choices;
  const [{ function: made, id }] = message.tool_calls;
  for (const ids of [["call_other"], [id, "call_other"], [undefined]]) {
    const tool_calls = ids.map((callId) => ({ id: callId, type: "function", function: made }));
    const history = [...messages, { ...message, tool_calls }, { role: "tool", content: "a" }];
    await postJson("/v1/chat/completions", { messages: history, tools: [bash] });
  }
  for (const prompt of prompts().slice(1)) expect(prompt).not.toContain("\n\n\n<｜DSML｜");
});
