import { describe, expect, it } from "vitest";
import { callTokens, testServer, tokenizer } from "../../test/fixtures/test-server.ts";
import { PieceBuilder } from "../template/pieces.ts";
import { AnswerMemory, PrefixDigest } from "./answer-memory.ts";

const bash = {
  type: "function",
  function: { name: "bash", parameters: { type: "object", properties: { command: { type: "string" } } } },
};
const messages = [{ role: "user", content: "Say hello" }];
const next = { role: "user", content: "Again" };
/** Not how the tokenizer would cut it: every letter is a token. */
const letters = [..."hello"];
const idsOf = (tokens: readonly string[]) =>
  tokens.map((text) => tokenizer.specialId(text) ?? tokenizer.encode(text)[0]);

/** The tokens of each prompt. */
const promptIds = (server: ReturnType<typeof testServer>) =>
  server.source.requests.map(({ promptTokens }) => [...promptTokens]);

describe("an answer sent back is the tokens that were sampled (cases 98, 99)", () => {
  it("cuts the word otherwise than the tokenizer, or nothing here shows anything", () => {
    expect(tokenizer.encode("hello").length).toBeLessThan(letters.length);
    expect(tokenizer.decode(idsOf(letters))).toBe("hello");
  });

  it.each(["chat", "messages", "responses", "previous_response_id", "ollama"] as const)(
    "over %s",
    async (api) => {
      const server = testServer({ scripts: [{ tokens: letters }] });
      const { postJson } = server;
      if (api === "chat") {
        const request = { messages, reasoning_effort: "none" };
        const { choices } = await postJson("/v1/chat/completions", request);
        const history = [...messages, choices[0].message, next];
        await postJson("/v1/chat/completions", { ...request, messages: history });
      } else if (api === "messages") {
        const { content } = await postJson("/v1/messages", { messages, max_tokens: 100 });
        const history = [...messages, { role: "assistant", content }, next];
        await postJson("/v1/messages", { messages: history, max_tokens: 100 });
      } else if (api === "ollama") {
        const request = { model: "m", think: false, stream: false };
        const { message } = await postJson("/api/chat", { ...request, messages });
        await postJson("/api/chat", { ...request, messages: [...messages, message, next] });
      } else {
        const request = { reasoning: { effort: "none" } };
        const { id, output } = await postJson("/v1/responses", { ...request, input: messages });
        const more =
          api === "responses"
            ? { input: [...messages, ...output, next] }
            : { input: [next], previous_response_id: id };
        await postJson("/v1/responses", { ...request, ...more });
      }
      const [first, second] = promptIds(server);
      const sampled = [...first, ...idsOf(letters)];
      expect(second.slice(0, sampled.length)).toEqual(sampled);
      expect(tokenizer.decode(second.slice(sampled.length))).toMatch(/^<｜end▁of▁sentence｜><｜User｜>Again/);
    },
  );

  it("brings back reasoning that the client left out, where the prompt keeps reasoning (case 98)", async () => {
    const sampled = [..."why", "</think>", ...callTokens("bash", "command", "ls")].flatMap((text) =>
      tokenizer.specialId(text) === undefined && tokenizer.encode(text).length > 1 ? [...text] : [text],
    );
    const server = testServer({ scripts: [{ tokens: sampled }] });
    const { choices } = await server.postJson("/v1/chat/completions", { messages, tools: [bash] });
    const { role, content, tool_calls } = choices[0].message;
    const result = { role: "tool", tool_call_id: tool_calls[0].id, content: "a" };
    for (const reasoning_content of [undefined, "", "why"]) {
      const history = [...messages, { role, content, tool_calls, reasoning_content }, result];
      await server.postJson("/v1/chat/completions", { messages: history, tools: [bash] });
    }
    const [first, ...later] = promptIds(server);
    const whole = [...first, ...idsOf(sampled)];
    for (const prompt of later) expect(prompt.slice(0, whole.length)).toEqual(whole);
  });

  it("renders by the book what was changed: content, reasoning, or anything before", async () => {
    const server = testServer({ scripts: [{ tokens: [..."why", "</think>", ...letters] }] });
    const request = { tools: [bash] };
    const { choices } = await server.postJson("/v1/chat/completions", { ...request, messages });
    const { message } = choices[0];
    const changed = [
      [...messages, { ...message, content: "hello!" }, next],
      [...messages, { ...message, reasoning_content: "because" }, next],
      [{ role: "user", content: "Say hello." }, message, next],
      [{ role: "system", content: "Be kind" }, ...messages, message, next],
    ];
    for (const history of changed) {
      await server.postJson("/v1/chat/completions", { ...request, messages: history });
    }
    const single = idsOf(letters).join(" ");
    for (const prompt of promptIds(server)) expect(prompt.join(" ")).not.toContain(single);
  });

  it("does not bring back markup that was no call, thinking that was cut, or what a stop string cut", async () => {
    const server = testServer();
    const cases = [
      { script: ["</think>", ...letters, ...callTokens("other", "a", "b")], request: { tools: [bash] } },
      { script: letters, request: { tools: [bash], max_tokens: 3 } },
      { script: ["</think>", ...letters, ..." world"], request: { tools: [bash], stop: "wor" } },
    ];
    for (const { script, request } of cases) {
      server.source.play({ tokens: script });
      const { choices } = await server.postJson("/v1/chat/completions", { ...request, messages });
      const history = [...messages, choices[0].message, next];
      await server.postJson("/v1/chat/completions", { ...request, messages: history });
      const second = promptIds(server).at(-1)!;
      const single = idsOf(letters.slice(0, 3)).join(" ");
      expect(second.join(" ")).not.toContain(single);
    }
  });
});

describe("AnswerMemory", () => {
  const ids = (text: string) => Int32Array.from([...text].flatMap((char) => [...tokenizer.encode(char)]));
  const prompt = () => new PieceBuilder().text("Say hello").special("</think>");
  const prefix = new PrefixDigest("m").at(prompt().boundary()!);
  const seen = { reasoning: "", content: "hello", callIds: [] };
  const message = { role: "assistant" as const };
  const replays = (memory: AnswerMemory, modelId = "m") =>
    memory.replay(prompt(), new PrefixDigest(modelId), message, " hello\n", tokenizer);

  it("survives a file, but for its damaged records", () => {
    const memory = new AnswerMemory();
    memory.remember(prefix, seen, ids("hello"), tokenizer);
    memory.remember("other", { ...seen, reasoning: "he" }, ids("hello"), tokenizer);
    expect(memory.entryCount).toBe(3);
    const bytes = memory.serialize();
    const restored = new AnswerMemory();
    expect(restored.restore(bytes)).toBe(0);
    expect(replays(restored)).toBe(true);
    expect(replays(restored, "other model")).toBe(false);
    for (let at = 0; at < bytes.length; at += 7) {
      const damaged = bytes.slice();
      damaged[at] ^= 0x40;
      const left = new AnswerMemory();
      expect(left.restore(damaged)).toBeGreaterThan(0);
      expect(left.entryCount).toBeLessThan(3);
      expect(() => left.restore(damaged.slice(0, at))).not.toThrow();
    }
  });

  it("forgets the least recently used answer above its limit", () => {
    const memory = new AnswerMemory(3 * (256 + 4 * 5));
    memory.remember(prefix, seen, ids("hello"), tokenizer);
    for (const other of ["a", "b"]) memory.remember(other, seen, ids("hello"), tokenizer);
    expect(replays(memory)).toBe(true);
    memory.remember("c", seen, ids("hello"), tokenizer);
    expect(memory.entryCount).toBe(3);
    expect(replays(memory)).toBe(true);
    for (const other of ["d", "e", "f"]) memory.remember(other, seen, ids("hello"), tokenizer);
    expect(replays(memory)).toBe(false);
  });
});
