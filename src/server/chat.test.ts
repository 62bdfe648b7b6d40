import { describe, expect, it } from "vitest";
import { callTokens, type Json, sseData, testServer } from "../../test/fixtures/test-server.ts";

const PATH = "/v1/chat/completions";
const messages = [{ role: "user", content: "Hi" }];
const bash = {
  type: "function",
  function: {
    name: "bash",
    description: "Runs a command",
    parameters: { type: "object", properties: { command: { type: "string" } }, required: ["command"] },
  },
};

describe("/v1/chat/completions", () => {
  it("answers with reasoning, content, usage and timings (case 93)", async () => {
    const { post } = testServer({
      scripts: [{ tokens: ["I", " think", "</think>", "Hello", "!"], reusedTokens: 2 }],
    });
    const response = await post(PATH, { model: "any", messages });
    expect(response.status).toBe(200);
    const body: Json = await response.json();
    expect(body).toMatchObject({
      object: "chat.completion",
      model: "nano",
      choices: [
        {
          index: 0,
          message: { role: "assistant", content: "Hello!", reasoning_content: "I think" },
          finish_reason: "stop",
          logprobs: null,
        },
      ],
      usage: {
        completion_tokens: 5,
        prompt_tokens_details: { cached_tokens: 2 },
        completion_tokens_details: { reasoning_tokens: 3 },
      },
      timings: { cache_n: 2, predicted_n: 5 },
    });
    expect(body.usage.total_tokens).toBe(body.usage.prompt_tokens + 5);
  });

  it("streams role, reasoning, content, finish, one usage chunk and DONE (case 93)", async () => {
    const { post } = testServer({ scripts: [{ tokens: ["I", " think", "</think>", "Hello", "!"] }] });
    const response = await post(PATH, { messages, stream: true, stream_options: { include_usage: true } });
    expect(response.headers.get("content-type")).toContain("text/event-stream");
    const chunks = await sseData(response);
    expect(chunks.at(-1)).toBe("[DONE]");
    const deltas = chunks.slice(0, -2).map((chunk) => chunk.choices[0].delta);
    expect(deltas).toEqual([
      { role: "assistant", content: "" },
      { reasoning_content: "I" },
      { reasoning_content: " think" },
      { content: "Hello" },
      { content: "!" },
      {},
    ]);
    expect(chunks.at(-3)?.choices[0].finish_reason).toBe("stop");
    expect(chunks.at(-2)).toMatchObject({ choices: [], usage: { completion_tokens: 5 } });
    expect(new Set(chunks.slice(0, -1).map((chunk) => chunk.id)).size).toBe(1);
  });

  it("streams a tool call in fragments and gives it whole otherwise (cases 57, 60)", async () => {
    const tokens = ["</think>", ...callTokens("bash", "command", "make 2>&1")];
    const { post, postJson } = testServer({ scripts: [{ tokens }] });
    const body = await postJson(PATH, { messages, tools: [bash] });
    const [call] = body.choices[0].message.tool_calls;
    expect(body.choices[0]).toMatchObject({ finish_reason: "tool_calls", message: { content: null } });
    expect(call).toMatchObject({ type: "function", function: { name: "bash" } });
    expect(JSON.parse(call.function.arguments)).toEqual({ command: "make 2>&1" });

    const chunks = await sseData(await post(PATH, { messages, tools: [bash], stream: true }));
    const calls = chunks.flatMap((chunk) => chunk.choices?.[0]?.delta.tool_calls ?? []);
    expect(calls[0]).toMatchObject({ index: 0, type: "function", function: { name: "bash", arguments: "" } });
    expect(calls[0].id).toMatch(/^call_[0-9a-f]{24}$/);
    expect(calls.length).toBeGreaterThan(3);
    const text = calls.map((part) => part.function.arguments).join("");
    expect(JSON.parse(text)).toEqual({ command: "make 2>&1" });
    expect(JSON.stringify(chunks)).not.toContain("DSML");
  });

  it("never gives half a call when the limit cuts it (case 62)", async () => {
    const tokens = ["</think>", ...callTokens("bash", "command", "ls")];
    for (let maxTokens = 2; maxTokens < tokens.length - 6; maxTokens++) {
      const { postJson } = testServer({ scripts: [{ tokens }] });
      const body = await postJson(PATH, { messages, tools: [bash], max_tokens: maxTokens });
      const { message, finish_reason } = body.choices[0];
      expect(finish_reason).toBe("length");
      for (const call of message.tool_calls ?? [])
        expect(JSON.parse(call.function.arguments)).toEqual({ command: "ls" });
    }
  });

  it("ends a stream with an error when an announced call turns out malformed", async () => {
    const tokens = ["</think>", ...callTokens("bash", "command", "ls").slice(0, -12)];
    const { post, lines } = testServer({ scripts: [{ tokens }] });
    const chunks = await sseData(await post(PATH, { messages, tools: [bash], stream: true }));
    expect(chunks.at(-1)).toMatchObject({ error: { type: "server_error" } });
    expect(lines.join("\n")).toContain("malformed tool call");
  });

  it("renders tools, developer text, results and returned reasoning (cases 73, 104)", async () => {
    const { post, prompts } = testServer();
    const response = await post(PATH, {
      messages: [
        { role: "developer", content: [{ type: "text", text: "Be brief." }] },
        { role: "user", content: "List" },
        {
          role: "assistant",
          content: "Running.",
          reasoning_content: "I must list.",
          tool_calls: [
            { id: "c1", type: "function", function: { name: "bash", arguments: '{"command":"ls"}' } },
          ],
        },
        { role: "tool", tool_call_id: "c1", content: "a.txt" },
      ],
      tools: [bash, { type: "web_search" }],
      tool_choice: "auto",
      unknown_field: { deep: true },
    });
    expect(response.status).toBe(200);
    const [prompt] = prompts();
    expect(prompt).toContain("Be brief.");
    expect(prompt).toContain("I must list.</think>Running.");
    expect(prompt).toContain("<tool_result>a.txt</tool_result>");
    expect(prompt).not.toContain("web_search");
    expect(prompt.endsWith("<think>")).toBe(true);
  });

  it.each([
    { reasoning_effort: "none" },
    { thinking: { type: "disabled" } },
    { chat_template_kwargs: { enable_thinking: false } },
    { reasoning: { effort: "none" } },
    { think: false },
    { enable_thinking: false, reasoning_effort: "high" },
  ])("thinking is off with %j (case 73)", async (fields) => {
    const { post, prompts } = testServer();
    await post(PATH, { messages, ...fields });
    expect(prompts()[0].endsWith("</think>")).toBe(true);
  });

  it("knows every effort and refuses others with the list (case 72)", async () => {
    const { post, prompts } = testServer();
    for (const effort of ["minimal", "low", "medium", "high", "xhigh", "max"]) {
      expect((await post(PATH, { messages, reasoning_effort: effort })).status).toBe(200);
    }
    expect(prompts().map((prompt) => prompt.includes("Reasoning Effort"))).toEqual([
      ...new Array(5).fill(false),
      true,
    ]);
    const refused = await post(PATH, { messages, reasoning_effort: "ultra" });
    expect(refused.status).toBe(400);
    const { error }: Json = await refused.json();
    expect(error.param).toBe("reasoning_effort");
    for (const name of ["none", "minimal", "xhigh", "max"]) expect(error.message).toContain(name);
  });

  it("keeps unclosed thinking as reasoning (cases 70, 71)", async () => {
    const { postJson } = testServer({
      scripts: [{ tokens: ["secret", " plan", " x"] }, { tokens: ["Good", " morning!"] }],
    });
    const cut = await postJson(PATH, { messages, max_tokens: 2 });
    expect(cut.choices[0]).toMatchObject({
      finish_reason: "length",
      message: { content: null, reasoning_content: "secret plan" },
    });
    const whole = await postJson(PATH, { messages });
    expect(whole.choices[0]).toMatchObject({
      finish_reason: "stop",
      message: { content: null, reasoning_content: "Good morning!" },
    });
  });

  it("cuts at stop strings in content only (case 105)", async () => {
    const tokens = ["STOP", "</think>", "A B C ", "ST", "OP D", " E"];
    const { postJson, source } = testServer({ scripts: [{ tokens }] });
    const body = await postJson(PATH, { messages, stop: "STOP" });
    expect(body.choices[0]).toMatchObject({
      finish_reason: "stop",
      message: { content: "A B C ", reasoning_content: "STOP" },
    });
    expect(source.running).toBe(0);
  });

  it("gives log-probabilities of content", async () => {
    const { postJson } = testServer({ scripts: [{ tokens: ["x", "</think>", "Hello", "!"] }] });
    const request = { messages, logprobs: true, top_logprobs: 2 };
    const body = await postJson(PATH, request);
    expect(body.choices[0].logprobs.content).toHaveLength(2);
    expect(body.choices[0].logprobs.content[1]).toMatchObject({ token: "!", logprob: -0.5, bytes: [33] });
    expect(body.choices[0].logprobs.content[1].top_logprobs).toHaveLength(2);
  });

  it.each([
    [{ messages: [{ role: "user", content: 5 }] }, "messages[0].content", "string"],
    [{ messages: [{ role: "robot", content: "x" }] }, "messages[0].role", "assistant"],
    [{ messages: [] }, "messages", ">=1"],
    [{ messages, temperature: "hot" }, "temperature", "number"],
    [{ messages, top_p: 2 }, "top_p", "1"],
    [{ messages, stop: [1] }, "stop[0]", "string"],
    [{ messages, n: 2 }, "n", "not supported yet"],
    [{ messages, functions: [{ name: "f" }] }, "functions", "send them as tools"],
    [{ messages, tool_choice: "required" }, "tool_choice", "there are no tools"],
    [{ messages, tool_choice: "perhaps" }, "tool_choice", "auto, none, required"],
    [
      { messages, tool_choice: { type: "function", function: { name: "x" } } },
      "tool_choice",
      "the name of a tool",
    ],
    [{ messages, response_format: { type: "yaml" } }, "response_format.type", "json_schema"],
    [
      { messages: [{ role: "user", content: [{ type: "image_url", image_url: {} }] }] },
      "messages[0].content[0]",
      "image_url",
    ],
  ])("refuses %j with path and reason (case 103)", async (body, param, reason) => {
    const { post, source } = testServer();
    const response = await post(PATH, body);
    expect(response.status).toBe(400);
    const { error }: Json = await response.json();
    expect(error).toMatchObject({ type: "invalid_request_error", param });
    expect(error.message).toContain(reason);
    expect(source.requests).toHaveLength(0);
  });

  it("refuses bad JSON with its position (case 91)", async () => {
    const { post } = testServer();
    const response = await post(PATH, '{"messages":[{"role":"system","content":"\\s"}]}');
    expect(response.status).toBe(400);
    expect(((await response.json()) as Json).error.message).toMatch(/position 42/);
    for (const body of ["{", "nope", "", "[".repeat(500)]) expect((await post(PATH, body)).status).toBe(400);
  });

  it("refuses an overlong prompt in words that clients know (cases 84, 85)", async () => {
    const { post, source } = testServer({ model: { ctxTokens: 512 } });
    const long = { messages: [{ role: "user", content: "word ".repeat(2000) }], stream: true };
    const response = await post(PATH, long);
    expect(response.status).toBe(400);
    const { error }: Json = await response.json();
    expect(error.code).toBe("context_length_exceeded");
    expect(error.message).toContain("maximum context length is 512 tokens");
    expect(error).toMatchObject({ n_ctx: 512 });
    expect(error.n_prompt_tokens).toBeGreaterThan(512);
    expect(source.requests).toHaveLength(0);
    await post(PATH, { messages });
    const exact = source.requests[0].promptTokens.length;
    expect((await testServer({ model: { ctxTokens: exact } }).post(PATH, { messages })).status).toBe(400);
    expect((await testServer({ model: { ctxTokens: exact + 1 } }).post(PATH, { messages })).status).toBe(200);
  });

  it("passes sampling on and seeds at random otherwise", async () => {
    const { post, source } = testServer();
    await post(PATH, {
      messages,
      temperature: 0.5,
      top_p: 0.9,
      top_k: -1,
      min_p: 0,
      seed: -1,
      max_completion_tokens: 7,
    });
    expect(source.requests[0]).toMatchObject({
      maxTokens: 7,
      sampling: { temperature: 0.5, topP: 0.9, topK: 0, minP: 0, seed: 2n ** 64n - 1n },
    });
    await post(PATH, { messages });
    await post(PATH, { messages });
    expect(source.requests[1].sampling?.seed).not.toBe(source.requests[2].sampling?.seed);
  });
});
