import { describe, expect, it } from "vitest";
import { callTokens, type Json, testServer } from "../../test/fixtures/test-server.ts";
import { ServerState } from "./server-state.ts";

const chat = { messages: [{ role: "user", content: "Hi" }] };

describe("Ollama's API", () => {
  it("streams lines unless told otherwise, with thinking and calls", async () => {
    const { post } = testServer({ scripts: [{ tokens: ["Hm", "</think>", "Hello", "!"] }] });
    const response = await post("/api/chat", {
      model: "nano",
      messages: chat.messages,
      options: { num_predict: 20 },
    });
    expect(response.headers.get("content-type")).toContain("application/x-ndjson");
    const lines: Json[] = (await response.text())
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines.map(({ message }) => message.thinking ?? message.content)).toEqual(["Hm", "Hello", "!", ""]);
    expect(lines.at(-1)).toMatchObject({ done: true, done_reason: "stop", eval_count: 4 });
  });

  it("answers whole, thinks not when asked not to, lists the model", async () => {
    const { app, postJson, prompts } = testServer();
    const body = await postJson("/api/chat", { messages: chat.messages, stream: false, think: false });
    expect(body).toMatchObject({
      model: "nano",
      done: true,
      message: { role: "assistant", content: "Hello world!" },
    });
    expect(prompts()[0].endsWith("</think>")).toBe(true);
    expect(await (await app.request("/api/tags")).json()).toMatchObject({ models: [{ name: "nano" }] });
    expect(await (await app.request("/api/version")).json()).toEqual({ version: "1.2.3" });
    expect(await postJson("/api/chat", { messages: chat.messages, format: "xml" })).toEqual({
      error: expect.stringContaining("format"),
    });
  });
});

describe("Ollama's API, as front ends look at it", () => {
  it("shows abilities and context of the loaded model, by either name, and of no other", async () => {
    const { app, post, postJson } = testServer();
    for (const body of [{ model: "nano" }, { name: "nano:latest" }]) {
      expect(await postJson("/api/show", body)).toMatchObject({
        capabilities: ["completion", "tools", "thinking"],
        model_info: { "general.architecture": "deepseek4", "deepseek4.context_length": 4096 },
      });
    }
    expect(await (await app.request("/api/ps")).json()).toMatchObject({
      models: [{ model: "nano", context_length: 4096 }],
    });
    const unknown = await post("/api/show", { model: "llama" });
    expect(unknown.status).toBe(404);
    expect(await unknown.json()).toEqual({ error: expect.stringContaining("the loaded model is nano") });
  });

  it("answers unknown routes, keys and loading in Ollama's shape below /api, in Anthropic's below its own", async () => {
    const { app } = testServer({ apiKeys: ["k"] });
    const headers = { authorization: "Bearer k" };
    const nothing = await app.request("/api/pull", { method: "POST", headers });
    expect([nothing.status, await nothing.json()]).toEqual([
      404,
      { error: "no such endpoint: POST /api/pull" },
    ]);
    const denied = await app.request("/api/tags");
    expect([denied.status, await denied.json()]).toEqual([401, { error: expect.stringMatching(/key/i) }]);
    const batches = await app.request("/v1/messages/batches", { headers });
    expect(await batches.json()).toMatchObject({ type: "error", error: { type: "not_found_error" } });
    const loading = testServer({ state: new ServerState() });
    loading.state.stop();
    const refused = await loading.app.request("/api/tags");
    expect([refused.status, await refused.json()]).toEqual([503, { error: expect.any(String) }]);
    expect(loading.lines.join("\n")).not.toContain("internal error");
  });

  it("gives calls an id, and with it sees them again as they were sampled", async () => {
    const tokens = ["Why", "</think>", "\n", ...callTokens("bash", "command", "ls")]; // one newline more than by the book
    const { postJson, prompts } = testServer({ scripts: [{ tokens }, { tokens: ["</think>", "ok"] }] });
    const tools = [{ type: "function", function: { name: "bash", parameters: { type: "object" } } }];
    const messages: Json[] = [...chat.messages];
    const { message } = await postJson("/api/chat", { messages, tools, stream: false });
    const [call] = message.tool_calls;
    expect(call).toMatchObject({ id: expect.stringMatching(/^call_/), function: { name: "bash" } });
    messages.push(message, { role: "tool", tool_call_id: call.id, content: "a.txt" });
    await postJson("/api/chat", { messages, tools, stream: false });
    expect(prompts()[1].startsWith(prompts()[0] + tokens.join(""))).toBe(true);
    expect(prompts()[1]).toContain("<tool_result>a.txt</tool_result>");
  });
});
