import { describe, expect, it } from "vitest";
import { callTokens, sseData, testServer } from "../../test/fixtures/test-server.ts";
import { ResponseStore } from "./response-store.ts";

const PATH = "/v1/responses";
const exec = {
  type: "function",
  name: "exec_command",
  strict: false,
  parameters: { type: "object", properties: { cmd: { type: "string" } }, required: ["cmd"] },
};

describe("/v1/responses", () => {
  it("takes plain text without instructions (case 95)", async () => {
    const { postJson } = testServer({ scripts: [{ tokens: ["Hm", "</think>", "Hello!"], reusedTokens: 2 }] });
    const body = await postJson(PATH, { model: "m", input: "Hello!" });
    expect(body).toMatchObject({
      object: "response",
      status: "completed",
      output: [
        { type: "reasoning", content: [{ type: "reasoning_text", text: "Hm" }], summary: [] },
        {
          type: "message",
          role: "assistant",
          content: [{ type: "output_text", text: "Hello!", annotations: [] }],
        },
      ],
      usage: {
        input_tokens_details: { cached_tokens: 2 },
        output_tokens: 3,
        output_tokens_details: { reasoning_tokens: 2 },
      },
    });
  });

  it("answers a warm-up with empty input", async () => {
    const { post } = testServer();
    expect((await post(PATH, { model: "m", input: "", max_output_tokens: 1 })).status).toBe(200);
    expect((await post(PATH, { model: "m", input: [] })).status).toBe(200);
  });

  it("streams numbered events of reasoning, text and a call", async () => {
    const tokens = ["Hm", "</think>", "Go.", ...callTokens("exec_command", "cmd", "ls")];
    const { post } = testServer({ scripts: [{ tokens }] });
    const request = {
      input: "Hi",
      stream: true,
      reasoning: { summary: "auto" },
      tools: [exec],
      store: false,
    };
    const events = await sseData(await post(PATH, { ...request, include: ["reasoning.encrypted_content"] }));
    expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, index) => index));
    const names: string[] = events.map((event) => event.type.replace("response.", ""));
    expect(names.filter((name, index) => name !== names[index - 1])).toEqual([
      ...["created", "in_progress"],
      ...["output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"],
      ...["reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"],
      ...["output_item.added", "content_part.added", "output_text.delta"],
      ...["output_text.done", "content_part.done", "output_item.done"],
      ...[
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
      ],
      "completed",
    ]);
    const { response } = events.at(-1);
    expect(response.output.map((item: { type: string }) => item.type)).toEqual([
      "reasoning",
      "message",
      "function_call",
    ]);
    expect(response.output[2]).toMatchObject({
      name: "exec_command",
      call_id: expect.stringMatching(/^call_/),
    });
    expect(JSON.parse(response.output[2].arguments)).toEqual({ cmd: "ls" });
    expect(response.output[0].encrypted_content).toMatch(/^ds4\.text\./);
  });

  it("never ends the item of a call that the limit cut (case 62)", async () => {
    const tokens = ["</think>", ...callTokens("exec_command", "cmd", "ls")];
    const { post } = testServer({ scripts: [{ tokens }] });
    const request = { input: "Hi", stream: true, tools: [exec], max_output_tokens: tokens.length - 14 };
    const events = await sseData(await post(PATH, request));
    expect(events.at(-1)).toMatchObject({
      type: "response.incomplete",
      response: { status: "incomplete", incomplete_details: { reason: "max_output_tokens" }, output: [] },
    });
    expect(events.some(({ type }) => type === "response.output_item.done")).toBe(false);
  });

  it("renders what codex sends in its tool turn", async () => {
    const { post, prompts } = testServer();
    const response = await post(PATH, {
      input: [
        { type: "message", role: "developer", content: [{ type: "input_text", text: "You are codex." }] },
        { type: "message", role: "user", content: [{ type: "input_text", text: "List" }] },
        {
          type: "reasoning",
          id: "rs_1",
          summary: [],
          content: [{ type: "reasoning_text", text: "I list." }],
        },
        { type: "function_call", id: "fc_1", name: "exec_command", arguments: '{"cmd":"ls"}', call_id: "c1" },
        { type: "function_call_output", call_id: "c1", output: "a.txt" },
      ],
      tools: [exec, { type: "namespace", name: "multi_agent_v1", tools: [] }, { type: "web_search" }],
      tool_choice: "auto",
      parallel_tool_calls: true,
      store: false,
      prompt_cache_key: "k",
      client_metadata: {},
    });
    expect(response.status).toBe(200);
    const [prompt] = prompts();
    for (const part of ["You are codex.", "I list.</think>", "<tool_result>a.txt</tool_result>"]) {
      expect(prompt).toContain(part);
    }
    expect(prompt).not.toContain("multi_agent");
  });

  it("continues a stored response and names an unknown one (case 96)", async () => {
    const { post, postJson, prompts } = testServer({ scripts: [{ tokens: ["</think>", "First answer"] }] });
    const first = await postJson(PATH, { input: "One", instructions: "Old rules." });
    const second = await postJson(PATH, { input: "Two", previous_response_id: first.id });
    expect(second).toMatchObject({ status: "completed", previous_response_id: first.id });
    for (const part of ["One", "First answer", "Two"]) expect(prompts()[1]).toContain(part);
    expect(prompts()[1]).not.toContain("Old rules.");
    const unstored = await postJson(PATH, { input: "One", store: false });
    for (const id of ["resp_nope", unstored.id]) {
      const refused = await post(PATH, { input: "x", previous_response_id: id });
      expect(refused.status).toBe(400);
      expect(await refused.json()).toMatchObject({
        error: { code: "previous_response_not_found", message: expect.stringContaining(id) },
      });
    }
  });

  it.each([
    [{ input: [{ type: "magic" }] }, "magic"],
    [{ input: [{ role: "user", content: [{ type: "input_image" }] }] }, "input_image"],
    [{ input: 5 }, "input"],
    [{ input: "x", tool_choice: "required" }, "tool_choice"],
    [{ input: "x", text: { format: { type: "json_schema" } } }, "text.format"],
    [{ input: "x", reasoning: { effort: "ultra" } }, "reasoning.effort"],
  ])("refuses %j and says what (case 95)", async (request, reason) => {
    const { post, postJson } = testServer();
    expect((await post(PATH, request)).status).toBe(400);
    expect((await postJson(PATH, request)).error.message).toContain(reason);
  });

  it("ends a stream that breaks off with response.failed", async () => {
    const { post, lines } = testServer({ scripts: [{ tokens: ["a", "b"], failAt: 1 }] });
    const events = await sseData(await post(PATH, { input: "Hi", stream: true }));
    expect(events.at(-1)).toMatchObject({
      type: "response.failed",
      response: { error: { code: "server_error" } },
    });
    expect(JSON.stringify(events)).not.toContain("scripted fault"); // the client learns no internals, the log does
    expect(lines.join("\n")).toContain("scripted fault");
  });
});

describe("the store of responses", () => {
  it("forgets the oldest at either limit", () => {
    const store = new ResponseStore(2, 1000);
    for (const id of ["a", "b", "c"]) store.put(id, [{ role: "user", content: id }]);
    expect(() => store.get("a")).toThrow(/not found/);
    expect(store.get("c")).toEqual([{ role: "user", content: "c" }]);
    store.put("d", [{ role: "user", content: "x".repeat(900) }]);
    expect(() => store.get("b")).toThrow(/not found/);
    store.put("huge", [{ role: "user", content: "x".repeat(2000) }]);
    expect(() => store.get("huge")).toThrow(/not found/);
    expect(store.get("d")).toHaveLength(1);
  });
});
