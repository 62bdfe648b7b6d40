import { describe, expect, it, vi } from "vitest";
import { callTokens, type Json, sseData, testServer } from "../../test/fixtures/test-server.ts";

const PATH = "/v1/messages?beta=true";
const messages = [{ role: "user", content: "Hi" }];
const bash = {
  name: "bash",
  input_schema: { type: "object", properties: { command: { type: "string" } }, required: ["command"] },
  cache_control: { type: "ephemeral" },
};
const base = { model: "m", max_tokens: 600, messages };

describe("/v1/messages", () => {
  it("answers with a signed thinking block, text and a tool use", async () => {
    const tokens = ["Hm", "</think>", "Running.", ...callTokens("bash", "command", "ls")];
    const { postJson } = testServer({ scripts: [{ tokens, reusedTokens: 3 }] });
    const body = await postJson(PATH, {
      ...base,
      thinking: { type: "enabled", budget_tokens: 500 },
      tools: [bash],
    });
    expect(body).toMatchObject({
      type: "message",
      role: "assistant",
      content: [
        { type: "thinking", thinking: "Hm", signature: expect.stringMatching(/^ds4\./) },
        { type: "text", text: "Running." },
        { type: "tool_use", id: expect.stringMatching(/^toolu_/), name: "bash", input: { command: "ls" } },
      ],
      stop_reason: "tool_use",
      stop_sequence: null,
      usage: { cache_read_input_tokens: 3, output_tokens: tokens.length },
    });
  });

  it("streams blocks in Anthropic's order (case 79)", async () => {
    const tokens = ["Hm", "</think>", "Hello", ...callTokens("bash", "command", "ls")];
    const { post } = testServer({ scripts: [{ tokens }] });
    const request = { ...base, stream: true, thinking: { type: "adaptive" }, tools: [bash] };
    const events = await sseData(await post(PATH, request));
    const names = events.map((event) => event.delta?.type ?? event.content_block?.type ?? event.type);
    const once = names.filter((name, index) => name !== names[index - 1]);
    expect(once).toEqual([
      ...["message_start", "thinking", "thinking_delta", "signature_delta", "content_block_stop"],
      ...["text", "text_delta", "content_block_stop", "tool_use", "input_json_delta", "content_block_stop"],
      ...["message_delta", "message_stop"],
    ]);
    expect(events.at(-2)).toMatchObject({
      delta: { stop_reason: "tool_use" },
      usage: { output_tokens: tokens.length },
    });
    const json = events.map((event) => event.delta?.partial_json ?? "").join("");
    expect(JSON.parse(json)).toEqual({ command: "ls" });
  });

  it("keeps hidden thinking in its signature and takes it back", async () => {
    const { postJson, prompts } = testServer({
      scripts: [{ tokens: ["secret", " plan", "</think>", "Hi"] }],
    });
    const request = { ...base, thinking: { type: "adaptive", display: "omitted" }, tools: [bash] };
    const { content } = await postJson(PATH, request);
    expect(content[0]).toMatchObject({ type: "thinking", thinking: "" });
    expect(JSON.stringify(content)).not.toContain("secret");
    const history = [...messages, { role: "assistant", content }, { role: "user", content: "More" }];
    await postJson(PATH, { ...request, messages: history });
    expect(prompts()[1]).toContain("secret plan</think>Hi");
  });

  it("names the stop sequence (case 105)", async () => {
    const { postJson } = testServer({ scripts: [{ tokens: ["A B C ", "ST", "OP D"] }] });
    const body = await postJson(PATH, { ...base, stop_sequences: ["STOP"] });
    expect(body).toMatchObject({
      content: [{ type: "text", text: "A B C " }],
      stop_reason: "stop_sequence",
      stop_sequence: "STOP",
    });
  });

  it("says max_tokens when thinking used them up (case 74)", async () => {
    const { postJson } = testServer({ scripts: [{ tokens: [" thought"], isEndless: true }] });
    const body = await postJson(PATH, { ...base, thinking: { type: "enabled", budget_tokens: 10_000 } });
    expect(body).toMatchObject({ stop_reason: "max_tokens", usage: { output_tokens: 600 } });
  });

  it("drops the billing line, deferred and server tools; keeps mid-list system text (case 86)", async () => {
    const { post, prompts } = testServer();
    for (const cch of ["aaaaa", "bbbbb"]) {
      const response = await post(PATH, {
        ...base,
        system: [
          { type: "text", text: `x-anthropic-billing-header: cch=${cch};` },
          { type: "text", text: "You are X.", cache_control: { type: "ephemeral" } },
        ],
        messages: [...messages, { role: "system", content: [{ type: "text", text: "# Environment" }] }],
        tools: [
          bash,
          { name: "later", defer_loading: true, input_schema: {} },
          { type: "web_search_20250305", name: "web" },
        ],
        thinking: { type: "adaptive" },
        context_management: { edits: [] },
        output_config: { effort: "high" },
        metadata: { user_id: "{}" },
      });
      expect(response.status).toBe(200);
    }
    const [first, second] = prompts();
    expect(first).toBe(second);
    expect(first).toContain("You are X.");
    expect(first).toContain("# Environment");
    for (const gone of ["billing", "later", "web_search", "cache_control"]) expect(first).not.toContain(gone);
  });

  it("thinks only when asked to, however great the effort", async () => {
    const { post, prompts } = testServer();
    const messages = [{ role: "user", content: "Hi" }];
    const high = { output_config: { effort: "high" } };
    for (const extra of [{}, high, { ...high, thinking: { type: "disabled" } }])
      await post(PATH, { messages, max_tokens: 9, ...extra });
    await post(PATH, { messages, max_tokens: 9, ...high, thinking: { type: "adaptive" } });
    const ends = prompts().map((prompt) => /<｜Assistant｜>(.*)$/.exec(prompt)?.[1]);
    expect(ends).toEqual(["</think>", "</think>", "</think>", "<think>"]);
  });

  it("renders tool results, whether content is text or blocks", async () => {
    const { post, prompts } = testServer();
    const use = { type: "tool_use", id: "t1", name: "bash", input: { command: "ls" } };
    for (const content of ["a.txt", [{ type: "text", text: "a.txt" }]]) {
      const result = { type: "tool_result", tool_use_id: "t1", content, is_error: false };
      await post(PATH, {
        ...base,
        tools: [bash],
        messages: [...messages, { role: "assistant", content: [use] }, { role: "user", content: [result] }],
      });
    }
    expect(prompts()[0]).toContain("<tool_result>a.txt</tool_result>");
    expect(prompts()[0]).toBe(prompts()[1]);
  });

  it("counts the tokens of the call it stands for, while another answer runs (case 94)", async () => {
    const { post, postJson, source } = testServer({
      scripts: [{ tokens: ["x"], isEndless: true, tokenMs: 50, reusedTokens: 4 }],
    });
    const running = post(PATH, { ...base, max_tokens: 40 });
    const request = { ...base, max_tokens: 1, system: "Be brief.", tools: [bash] };
    await vi.waitFor(() => expect(source.running).toBe(1));
    const { input_tokens } = await postJson("/v1/messages/count_tokens", request);
    expect(source.running).toBe(1);
    await running;
    const { usage } = await postJson(PATH, request);
    expect(input_tokens).toBe(
      usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens,
    );
  });

  it("says prompt is too long in Anthropic's words (case 84)", async () => {
    const { post } = testServer({ model: { ctxTokens: 512 } });
    const response = await post(PATH, {
      ...base,
      messages: [{ role: "user", content: "word ".repeat(2000) }],
    });
    expect(response.status).toBe(400);
    const body: Json = await response.json();
    expect(body).toMatchObject({ type: "error", error: { type: "invalid_request_error" } });
    expect(body.error.message).toMatch(/^prompt is too long: \d+ tokens > 512 maximum$/);
  });

  it.each([
    [{ messages: [{ role: "user", content: [{ type: "image", source: {} }] }] }, "image"],
    [{ messages: [{ role: "user" }] }, "messages[0].content"],
    [{ tool_choice: { type: "any" } }, "tool_choice"],
    [{ thinking: { type: "loud" } }, "thinking.type"],
    [{ max_tokens: "many" }, "max_tokens"],
    [{ temperature: 9 }, "temperature: Too big: expected number to be <=1"],
    [{ temperature: -0.1 }, "temperature: Too small: expected number to be >=0"],
  ])("refuses %j in Anthropic's shape", async (fields, reason) => {
    const { post, postJson } = testServer();
    const body = { ...base, ...fields };
    expect((await post(PATH, body)).status).toBe(400);
    const { type, error } = await postJson(PATH, body);
    expect([type, error.type]).toEqual(["error", "invalid_request_error"]);
    expect(error.message).toContain(reason);
  });
});
