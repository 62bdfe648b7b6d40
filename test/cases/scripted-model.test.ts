// Cases that need the real scheduler and tokenizer under the server, and a model that says what a script says.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { API_FORMS, ask, FINISH } from "../fixtures/all-apis.ts";
import { EMOJI } from "../fixtures/emoji-script.ts";
import { type ScriptedServer, scriptedServer } from "../fixtures/scripted-server.ts";
import { type Json, tokenizer } from "../fixtures/test-server.ts";

const CTX_TOKENS = 1024;
const CHECKPOINT_TOKENS = 64;
let server: ScriptedServer;
beforeAll(async () => {
  const engine = { ctxTokens: CTX_TOKENS, checkpointTokens: CHECKPOINT_TOKENS };
  server = await scriptedServer(new URL("../fixtures/emoji-script.ts", import.meta.url), { engine });
});
afterAll(() => server.close());
const post = (path: string, body: unknown) =>
  fetch(server.url + path, { method: "POST", body: JSON.stringify(body) });

describe.each(API_FORMS)("over %s, streamed: %s", (api, stream) => {
  it("never breaks a character that is several tokens (case 115)", async () => {
    const tokens = tokenizer.encode(EMOJI);
    expect(tokens.length).toBeGreaterThan(2);
    const seen = await ask({ post }, api, { thinking: false }, stream);
    expect(seen).toMatchObject({ content: EMOJI, finish: FINISH[api].stop });
    const called = await ask({ post }, api, { tools: { say: {} }, thinking: false }, stream);
    expect(called.calls).toEqual([{ name: "say", args: { text: EMOJI } }]);
    for (const { raw } of [seen, called]) expect(raw).not.toContain("\ufffd");
  });

  it("ends a broken character with one U+FFFD (case 115)", async () => {
    const seen = await ask({ post }, api, { thinking: false, maxTokens: 1 }, stream);
    expect(seen).toMatchObject({ content: "\ufffd", finish: FINISH[api].length });
  });

  it("ends at the context's end when no limit is set (case 75)", async () => {
    server.answers.length = 0;
    const seen = await ask({ post }, api, { text: "endless", thinking: false }, stream);
    expect(seen.finish).toBe(FINISH[api].length);
    const [{ promptTokens, completionTokens }] = server.answers;
    expect(promptTokens + completionTokens).toBe(CTX_TOKENS);
  });
});

describe("a conversation that its client changes", () => {
  const rules = "common words ".repeat(100);
  let count = 0;
  /** Another beginning each time, so that nothing is known of it. */
  const user = (content: string) => ({ role: "user", content });
  const turn = async (messages: Json[]) => {
    const response = await post("/v1/chat/completions", { messages, reasoning_effort: "none" });
    const { usage, choices }: Json = await response.json();
    const { prompt_tokens, prompt_tokens_details } = usage;
    return {
      prompt: prompt_tokens,
      cached: prompt_tokens_details.cached_tokens,
      message: choices[0].message,
    };
  };

  it("is cold at first; the same again goes on from its end (case 101)", async () => {
    const messages = [user(`${++count} ${rules}`)];
    const first = await turn(messages);
    expect(first.cached).toBeLessThan(8);
    const again = await turn(messages);
    expect(again.cached).toBeGreaterThanOrEqual(again.prompt - 4);
    expect(again.message).toEqual(first.message);
  });

  it("reuses what branches have in common (case 100)", async () => {
    const base = `${++count} ${rules}`;
    await turn([user(`${base} then the first branch ${"goes on ".repeat(60)}`)]);
    const common = tokenizer.encode(base).length;
    const branch = await turn([user(`${base} and now another one`)]);
    expect(branch.cached).toBeGreaterThanOrEqual(common - CHECKPOINT_TOKENS);
  });

  it("goes back to before a block that is dropped from an earlier turn (case 88)", async () => {
    const question = `${++count} ${rules}`;
    const block = "<environment_details>today</environment_details>";
    const first = await turn([user(`${question} ${block} ${"What else? ".repeat(20)}`)]);
    const next = await turn([user(`${question} ${"What else? ".repeat(20)}`), first.message, user("More")]);
    expect(next.cached).toBeGreaterThanOrEqual(tokenizer.encode(question).length - CHECKPOINT_TOKENS);
    expect(next.cached).toBeLessThan(first.prompt);
  });

  it("grows turn by turn, each reading only what is new (case 106)", async () => {
    const messages = [user(`${++count} ${rules}`)];
    let known = 0;
    for (let round = 0; round < 10; round++) {
      const { prompt, cached, message } = await turn(messages);
      if (round > 0) expect(cached).toBeGreaterThanOrEqual(known - 4);
      known = prompt;
      messages.push(message, user(`Question ${round}`));
    }
  });

  it("stays warm while its billing line changes (case 86)", async () => {
    const ask86 = async (cch: string) => {
      const system = [
        { type: "text", text: `x-anthropic-billing-header: cch=${cch};` },
        { type: "text", text: `You are X. ${rules}` },
      ];
      const messages = [user("Hi")];
      return (await (await post("/v1/messages", { system, messages, max_tokens: 10 })).json()) as Json;
    };
    const { usage: cold } = await ask86("aaaaa");
    const total = cold.input_tokens + cold.cache_creation_input_tokens + cold.cache_read_input_tokens;
    expect(cold.cache_read_input_tokens).toBeLessThan(8);
    const { usage: warm } = await ask86("bbbbb");
    expect(warm.cache_read_input_tokens).toBeGreaterThanOrEqual(total - 4);
  });

  it("keeps the system text's prefix when a date at its end changes (case 87)", async () => {
    const at = async (date: string) =>
      await turn([
        { role: "system", content: `${++count} ${rules}`.replace(/^\d+/, "case 87") + date },
        user("Hi"),
      ]);
    await at(" 2026-12-01 10:00");
    const next = await at(" 2026-12-02 11:30");
    expect(next.cached).toBeGreaterThanOrEqual(tokenizer.encode(rules).length - CHECKPOINT_TOKENS);
  });
});
