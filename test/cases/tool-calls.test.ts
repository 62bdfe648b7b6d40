// Cases of lost, leaking or mistyped tool calls, over every API, streamed and not.
import { describe, expect, it } from "vitest";
import { API_FORMS, APIS, ask, FINISH } from "../fixtures/all-apis.ts";
import { callTokens, type Json, testHttpServer, testServer } from "../fixtures/test-server.ts";

const schema = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
const tools = { bash: schema };
const LS = [{ name: "bash", args: { command: "ls" } }];
/** Text in the tokens that hold it: marks as marks, all else letter by letter. */
const letters = (text: string) =>
  text
    .split(/(｜DSML｜|<\/think>)/)
    .flatMap((part) => (/^(｜DSML｜|<\/think>)$/.test(part) ? [part] : [...part]));
const callText = (command: string) => callTokens("bash", "command", command).join("").trimStart();
const script = (...tokens: string[]) => testServer({ scripts: [{ tokens }] });

describe.each(API_FORMS)("over %s, streamed: %s", (api, stream) => {
  it("gives a call as a call, and no markup anywhere (case 51)", async () => {
    const seen = await ask(script("ok", "</think>", ...letters(callText("ls"))), api, { tools }, stream);
    expect(seen).toMatchObject({ reasoning: "ok", content: "", calls: LS, finish: FINISH[api].calls });
    expect(seen.raw).not.toContain("DSML");
  });

  it("runs a call that ends unclosed thinking, not one that is quoted in it (case 52)", async () => {
    const lost = await ask(
      script("I will list files.\n\n", ...letters(callText("ls"))),
      api,
      { tools },
      stream,
    );
    expect(lost).toMatchObject({ reasoning: "I will list files.", content: "", calls: LS });
    const quoted = script(
      "a call looks like ",
      ...letters(callText("ls")),
      " but I will not",
      "</think>",
      "No.",
    );
    expect(await ask(quoted, api, { tools }, stream)).toMatchObject({ content: "No.", calls: [] });
  });

  it("never gives half a call when foreign tags close it, but an error to retry (case 53)", async () => {
    const text =
      '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="bash">\n<｜DSML｜parameter name="command" string="true">ls</tool_call></function>';
    const seen = await ask(script("</think>", ...letters(text)), api, { tools }, stream);
    expect(seen.calls).toEqual([]);
    expect(seen.finish).toMatch(/malformed tool call.*try again|internal error/);
    expect(seen.status).toBe(stream ? 200 : 500);
  });

  it("keeps text that is no JSON as a string, and types as they are (cases 54, 56)", async () => {
    const mark = "｜DSML｜";
    const parameter = (name: string, isString: boolean, value: string) =>
      `<${mark}parameter name="${name}" string="${isString}">${value}</${mark}parameter>\n`;
    const text =
      `<${mark}tool_calls>\n<${mark}invoke name="search">\n` +
      `${parameter("n", false, "12 apples")}${parameter("max_results", false, "10")}` +
      `${parameter("exclude_domains", false, "[]")}${parameter("query", true, "10")}` +
      `</${mark}invoke>\n</${mark}tool_calls>`;
    const seen = await ask(script("</think>", ...letters(text)), api, { tools: { search: {} } }, stream);
    const args = { n: "12 apples", max_results: 10, exclude_domains: [], query: "10" };
    expect(seen.calls).toEqual([{ name: "search", args }]);
  });

  it.each(["make 2>&1", 'echo "</parameter>"', "cat <<E > a\n</x>\nE", "echo </｜DSML"])(
    "keeps the value exact, a letter a token: %j (case 57)",
    async (command) => {
      const seen = await ask(script("</think>", ...letters(callText(command))), api, { tools }, stream);
      expect(seen.calls).toEqual([{ name: "bash", args: { command } }]);
    },
  );

  it("parses a split start mark, and gives back text that only looks like one (case 58)", async () => {
    const server = script("</think>", ...letters(callText("ls")));
    for (const _ of [1, 2]) {
      server.source.play({ tokens: ["</think>", ...letters(callText("ls"))] });
      expect(await ask(server, api, { tools }, stream)).toMatchObject({ content: "", calls: LS });
      server.source.play({ tokens: ["</think>", ..."a <｜D b"] });
      expect(await ask(server, api, { tools }, stream)).toMatchObject({ content: "a <｜D b", calls: [] });
    }
  });

  it("keeps a stray closing tag out of the content (case 59)", async () => {
    const tokens = ["</think>", ...letters(callText("ls")), ...letters("</｜DSML｜invoke>")];
    const seen = await ask(script(...tokens), api, { tools }, stream);
    expect(seen).toMatchObject({ content: "", calls: LS });
    expect(seen.raw).not.toContain("DSML");
  });

  it("says stop for silence, traces what was sampled, and gives a call that follows (case 61)", async () => {
    const traced: string[] = [];
    const log = {
      line: () => {},
      traces: true,
      trace: (kind: string, record: object) => void traced.push(`${kind} ${JSON.stringify(record)}`),
    };
    const silent = testServer({ log, scripts: [{ tokens: ["think…", "</think>", "\n\n"] }] });
    const seen = await ask(silent, api, { tools }, stream);
    expect(seen).toMatchObject({ reasoning: "think…", calls: [], finish: FINISH[api].stop });
    expect(seen.content.trim()).toBe("");
    expect(traced.find((line) => line.startsWith("answer"))).toContain("think…</think>\\n\\n");
    const calling = script("think…", "</think>", "\n\n", ...letters(callText("ls")));
    expect(await ask(calling, api, { tools }, stream)).toMatchObject({
      calls: LS,
      finish: FINISH[api].calls,
    });
  });

  it("finishes no call with partial arguments, wherever the limit cuts it (case 62)", async () => {
    const tokens = ["</think>", ...callTokens("bash", "command", "ls").slice(1)];
    const callEnd = tokens.lastIndexOf("invoke") + 2;
    const server = script(...tokens);
    for (let maxTokens = 1; maxTokens < callEnd; maxTokens += 2) {
      const seen = await ask(server, api, { tools, maxTokens }, stream);
      expect(seen.finish, `${maxTokens} tokens`).toBe(FINISH[api].length);
      expect(seen.calls).toEqual([]);
    }
  });

  it("reads doubled bars and curly quotes of a known tool (case 63)", async () => {
    const text =
      "<｜｜DSML｜｜invoke name=“get_pages”>\n<｜｜DSML｜｜parameter name=“pages” string=“true”>3-5</｜｜DSML｜｜parameter>\n</｜｜DSML｜｜invoke>";
    const tokens = ["</think>", ...letters(text)];
    const known = await ask(script(...tokens), api, { tools: { get_pages: {} } }, stream);
    expect(known).toMatchObject({ content: "", calls: [{ name: "get_pages", args: { pages: "3-5" } }] });
    expect(await ask(script(...tokens), api, { tools }, stream)).toMatchObject({ content: text, calls: [] });
  });

  it("keeps empty values and calls without parameters (case 64)", async () => {
    const empty = await ask(script("</think>", ...letters(callText(""))), api, { tools }, stream);
    expect(empty.calls).toEqual([{ name: "bash", args: { command: "" } }]);
    const text =
      '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>';
    const none = await ask(script("</think>", ...letters(text)), api, { tools: { now: {} } }, stream);
    expect(none.calls).toEqual([{ name: "now", args: {} }]);
  });

  it("makes no call of an unknown tool, and says so in log and metrics (case 65)", async () => {
    const server = script("Hm", "</think>", ...callTokens("rm_all", "path", "/"));
    const seen = await ask(server, api, { tools }, stream);
    expect(seen.calls).toEqual([]);
    expect(seen.raw).not.toContain("rm_all");
    expect(server.lines.join("\n")).toContain("malformed tool call: unknown-tool");
  });

  it("gives each of several calls as it closes (case 68)", async () => {
    const one = callText("ls");
    const invoke = one.slice(one.indexOf("\n<｜DSML｜invoke"), one.indexOf("\n</｜DSML｜tool_calls"));
    const text = one.replace(invoke, `${invoke}${invoke}${invoke}`);
    const seen = await ask(script("</think>", ...letters(text)), api, { tools }, stream);
    expect(seen.calls).toEqual([...LS, ...LS, ...LS]);
  });

  it("keeps unclosed thinking as reasoning, once, at the limit and at a natural end (cases 70, 71)", async () => {
    const cut = await ask(script("secret", " plan", " x"), api, { maxTokens: 2 }, stream);
    expect(cut).toMatchObject({ reasoning: "secret plan", content: "", finish: FINISH[api].length });
    const ended = await ask(script("Good", " morning!"), api, {}, stream);
    expect(ended).toMatchObject({ reasoning: "Good morning!", content: "", finish: FINISH[api].stop });
    expect(ended.raw).not.toContain("end▁of▁sentence");
  });
});

describe("requests with tools", () => {
  it.each([
    '{"messages":[],"temperature":NaN}',
    '{"messages":[],"top_p":+1}',
    '{"messages":[],"top_k":01}',
    '{"messages":[],"top_k":Infinity}',
    `{"messages":[{"role":"user","content":"a${String.fromCharCode(7)}b"}]}`,
  ])("refuses loose JSON: %j (case 55)", async (body) => {
    const { post } = testServer();
    for (const path of ["/v1/chat/completions", "/v1/messages", "/v1/responses"]) {
      const response = await post(path, body);
      expect(response.status).toBe(400);
      expect(((await response.json()) as Json).error.message).toContain("not valid JSON");
    }
  });

  it("turns lone surrogates of a request into U+FFFD before they reach the model (case 55)", async () => {
    const { post, source } = testServer();
    const response = await post(
      "/v1/chat/completions",
      '{"messages":[{"role":"user","content":"a\\ud800b"}]}',
    );
    expect(response.status).toBe(200);
    expect(source.requests).toHaveLength(1);
  });

  it("makes no call of a tag without a name (case 55)", async () => {
    const seen = await ask(script("</think>", ...letters('<｜DSML｜invoke xname="bash">')), "chat", {
      tools,
    });
    expect(seen).toMatchObject({ calls: [], finish: "stop" });
  });

  const call = (args: unknown) => ({
    id: "c1",
    type: "function",
    function: { name: "bash", arguments: args },
  });
  const history = (args: unknown) => [
    { role: "user", content: "x" },
    { role: "assistant", tool_calls: [call(args)] },
    { role: "tool", tool_call_id: "c1", content: "y" },
  ];

  it("refuses arguments that are no object, naming the message; takes both forms of one (case 66)", async () => {
    const { post, prompts } = testServer();
    for (const args of ['"not an object"', "[1]", "5"]) {
      const response = await post("/v1/chat/completions", { messages: history(args) });
      expect(response.status).toBe(400);
      const { error }: Json = await response.json();
      expect(error.message).toContain("message 1");
      expect(error.message).toContain("bash");
    }
    for (const args of [{ command: "ls" }, '{"command":"ls"}'])
      expect((await post("/v1/chat/completions", { messages: history(args) })).status).toBe(200);
    expect(prompts()[0]).toBe(prompts()[1]);
  });

  it("pairs calls and results across other items, and names an orphan (case 67)", async () => {
    const { post, prompts } = testServer();
    const made = { type: "function_call", call_id: "c1", name: "bash", arguments: '{"command":"ls"}' };
    const result = { type: "function_call_output", call_id: "c1", output: "a.txt" };
    const note = { type: "message", role: "developer", content: "note" };
    const user = { role: "user", content: "list" };
    for (const input of [
      [user, made, note, result],
      [user, made, { type: "reasoning", summary: [] }, result],
    ]) {
      expect((await post("/v1/responses", { model: "m", input })).status).toBe(200);
    }
    for (const prompt of prompts()) {
      const at = prompt.indexOf('invoke name="bash"');
      expect(at).toBeGreaterThan(0);
      expect(prompt.indexOf("<tool_result>a.txt</tool_result>")).toBeGreaterThan(at);
    }
    expect(prompts()[0]).toContain("note");
    const orphan = await post("/v1/responses", { model: "m", input: [{ ...result, call_id: "c9" }] });
    expect(orphan.status).toBe(400);
    expect(((await orphan.json()) as Json).error.message).toMatch(/input\[0\].*c9/);
  });

  it("answers a full history although other requests came between (case 68)", async () => {
    const server = script("</think>", ...callTokens("bash", "command", "ls"));
    const first: Json = await server.postJson("/v1/messages", {
      ...{ max_tokens: 100, thinking: { type: "adaptive" }, tools: [{ name: "bash", input_schema: schema }] },
      messages: [{ role: "user", content: "x" }],
    });
    server.source.play({ tokens: ["x"] });
    await ask(server, "chat");
    const results = first.content
      .filter(({ type }: Json) => type === "tool_use")
      .map(({ id }: Json) => ({ type: "tool_result", tool_use_id: id, content: "y" }));
    const messages = [
      { role: "user", content: "x" },
      { role: "assistant", content: first.content },
      { role: "user", content: results },
    ];
    expect((await server.post("/v1/messages", { max_tokens: 9, messages })).status).toBe(200);
  });

  it("answers in turn on one connection without state of the turn before (case 58)", async () => {
    const server = await testHttpServer({ scripts: [{ tokens: ["</think>", ..."a <｜DS"] }] });
    try {
      const post = (path: string, body: unknown) =>
        fetch(server.url + path, { method: "POST", body: JSON.stringify(body) });
      for (const _ of [1, 2, 3])
        for (const api of APIS) expect((await ask({ post }, api, { tools }, true)).content).toBe("a <｜DS");
    } finally {
      server.http.destroy();
    }
  });
});
