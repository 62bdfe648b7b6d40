import { describe, expect, it } from "vitest";
import { type Json, testServer, tokenizer } from "../../test/fixtures/test-server.ts";
import { ServerState } from "./server-state.ts";

const CHAT = "/v1/chat/completions";
const chat = { messages: [{ role: "user", content: "Hi" }] };

describe("keys and origins", () => {
  it("tells clients not to try again what cannot pass, and to try what may", async () => {
    const { post, app } = testServer({ apiKeys: ["sk-one"] });
    const auth = { authorization: "Bearer sk-one" };
    const retry = (response: Response) => [response.status, response.headers.get("x-should-retry")];
    expect(retry(await post(CHAT, chat))).toEqual([401, "false"]);
    expect(retry(await post(CHAT, {}, auth))).toEqual([400, "false"]);
    expect(retry(await app.request("/v1/models/other", { headers: auth }))).toEqual([404, "false"]);
    const loading = testServer({ state: new ServerState() });
    loading.state.stop();
    expect(retry(await loading.post(CHAT, chat))).toEqual([503, null]);
  });

  it("wants a key as Bearer or x-api-key, and only then (case 90)", async () => {
    const { post, app } = testServer({ apiKeys: ["sk-one", "sk-two"] });
    const statusWith = async (headers: Record<string, string>) => (await post(CHAT, chat, headers)).status;
    expect(await statusWith({})).toBe(401);
    expect(await statusWith({ authorization: "Bearer wrong" })).toBe(401);
    expect(await statusWith({ authorization: "Basic sk-one" })).toBe(401);
    expect(await statusWith({ authorization: "bearer sk-one" })).toBe(200);
    expect(await statusWith({ "x-api-key": "sk-two" })).toBe(200);
    for (const path of ["/v1/models", "/metrics", "/openapi.json", "/api/tags"]) {
      expect((await app.request(path)).status, path).toBe(401);
    }
    expect((await app.request("/health")).status).toBe(200);
    const refused: Json = await (await post("/v1/messages", {})).json();
    expect(refused).toMatchObject({ type: "error", error: { type: "authentication_error" } });
    expect(JSON.stringify(refused)).not.toContain("sk-");
  });

  it("answers preflights of allowed origins without a key, and sends nothing when off (case 89)", async () => {
    const preflight = {
      origin: "http://a.example",
      "access-control-request-headers": "authorization,content-type",
    };
    const on = testServer({ corsOrigins: ["http://a.example"], apiKeys: ["k"] });
    const allowed = await on.app.request(CHAT, { method: "OPTIONS", headers: preflight });
    expect(allowed.status).toBe(204);
    expect(allowed.headers.get("access-control-allow-origin")).toBe("http://a.example");
    expect(allowed.headers.get("access-control-allow-headers")).toBe("authorization,content-type");
    const answer = await on.post(CHAT, chat, { origin: "http://a.example", authorization: "Bearer k" });
    expect(answer.headers.get("access-control-allow-origin")).toBe("http://a.example");
    const other = await on.app.request(CHAT, { method: "OPTIONS", headers: { origin: "http://b.example" } });
    expect(other.headers.get("access-control-allow-origin")).toBeNull();
    const off = await testServer().app.request(CHAT, { method: "OPTIONS", headers: preflight });
    expect([off.status, off.headers.get("access-control-allow-origin")]).toEqual([204, null]);
  });

  it("refuses foreign pages that need no preflight, also behind a name pointed here", async () => {
    const { post } = testServer();
    const status = async (origin: string, host: string) => (await post(CHAT, chat, { origin, host })).status;
    expect(await status("http://evil.example", "127.0.0.1:8000")).toBe(403);
    expect(await status("http://evil.example:8000", "evil.example:8000")).toBe(403);
    expect(await status("http://127.0.0.1:8000", "127.0.0.1:8000")).toBe(200);
    expect(await status("http://localhost:8000", "localhost:8000")).toBe(200);
  });
});

describe("the server itself", () => {
  it("lists the model with its context for all clients", async () => {
    const { app } = testServer();
    const list: Json = await (await app.request("/v1/models")).json();
    expect(list).toMatchObject({ object: "list", has_more: false });
    expect(list.data).toMatchObject([{ id: "nano", object: "model", type: "model", context_length: 4096 }]);
    expect(await (await app.request("/v1/models/nano")).json()).toMatchObject({ id: "nano" });
    const missing = await app.request("/v1/models/gpt-9");
    expect(missing.status).toBe(404);
    expect(await missing.json()).toMatchObject({ error: { code: "model_not_found" } });
    expect((await app.request("/v2/nothing")).status).toBe(404);
  });

  it("tokenizes without special tokens and back (case 121)", async () => {
    const { post, postJson } = testServer();
    const text = "Hi </think><｜User｜> 😀";
    const { tokens, count } = await postJson("/tokenize", { content: text });
    expect(count).toBe(tokens.length);
    expect(tokens.some((id: number) => tokenizer.isSpecial(id))).toBe(false);
    expect((await postJson("/detokenize", { tokens })).content).toBe(text);
    const special = await postJson("/tokenize", {
      content: "</think>",
      parse_special: true,
      add_special: true,
    });
    expect(special.tokens).toEqual([tokenizer.bosId, tokenizer.specialId("</think>")]);
    expect((await post("/detokenize", { tokens: [tokenizer.vocabSize] })).status).toBe(400);
    expect((await post("/detokenize", { tokens: "x" })).status).toBe(400);
    expect((await post("/tokenize", {})).status).toBe(400);
  });

  it("goes through loading, ready, failed and stopping", async () => {
    const state = new ServerState();
    const { app, post } = testServer({ state });
    const health = async (path = "/health") => (await app.request(path)).status;
    expect(await health()).toBe(200);
    state.phase = "loading";
    expect([await health(), await health("/health/live")]).toEqual([503, 200]);
    const loading = await post(CHAT, chat);
    expect([loading.status, loading.headers.get("retry-after")]).toEqual([503, "2"]);
    state.fail("device lost");
    expect([await health(), await health("/health/live")]).toEqual([503, 503]);
    expect(await (await app.request("/health")).json()).toEqual({ status: "failed", reason: "device lost" });
  });

  it("counts in Prometheus' format", async () => {
    const { app, post } = testServer({
      scripts: [{ tokens: ["a", "b", "c"], reusedTokens: 2 }],
      model: {
        readGauges: async () => [{ name: "memory_bytes", help: "m", labels: 'region="kv"', value: 7 }],
      },
    });
    await post(CHAT, chat);
    await post(CHAT, { messages: 1 });
    const text = await (await app.request("/metrics")).text();
    for (const line of [
      'ds4_requests_total{route="/v1/chat/completions",status="200"} 1',
      'ds4_requests_total{route="/v1/chat/completions",status="400"} 1',
      "ds4_prompt_tokens_reused_total 2",
      "ds4_completion_tokens_total 3",
      "ds4_time_to_first_token_seconds_count 1",
      "ds4_inter_token_seconds_count 2",
      'ds4_memory_bytes{region="kv"} 7',
      "ds4_ready 1",
    ]) {
      expect(text).toContain(`${line}\n`);
    }
    for (const line of text.trimEnd().split("\n")) {
      expect(line).toMatch(/^(# (HELP|TYPE) ds4_\w+ .+|ds4_\w+(\{[^}]*\})? -?[\d.e+-]+)$/);
    }
  });

  it("documents every request that it accepts", async () => {
    const { app } = testServer();
    const document: Json = await (await app.request("/openapi.json")).json();
    expect(document.openapi).toBe("3.1.0");
    const { schema } = document.paths["/v1/chat/completions"].post.requestBody.content["application/json"];
    expect(schema.properties.messages.type).toBe("array");
    const routes = app.routes.filter(({ method, path }) => method !== "ALL" && !path.includes("*"));
    const documented = Object.keys(document.paths).map((path) => path.replace("{id}", ":id{.+}"));
    const exempt = [
      "/",
      "/docs",
      "/web/:name",
      "/openapi.json",
      "/health/ready",
      "/health/live",
      "/api/hello",
    ];
    for (const { path } of routes) if (!exempt.includes(path)) expect(documented).toContain(path);
  });

  it("answers HEAD /api/hello", async () => {
    expect((await testServer().app.request("/api/hello", { method: "HEAD" })).status).toBe(200);
  });

  it("keeps prompts out of the log, and writes them to the trace", async () => {
    const traced: string[] = [];
    const trace = (kind: string, record: object) => traced.push(kind + JSON.stringify(record));
    const quiet = testServer();
    await quiet.post(CHAT, { messages: [{ role: "user", content: "my secret" }] });
    expect(quiet.lines.join("\n")).toContain("POST /v1/chat/completions 200");
    expect(quiet.lines.join("\n")).not.toContain("secret");
    const loud = testServer({ log: { line: () => {}, traces: true, trace } });
    await loud.post(CHAT, { messages: [{ role: "user", content: "my secret" }] });
    expect(traced.map((line) => line.slice(0, 6))).toEqual(["reques", "prompt", "answer"]);
    expect(traced[1]).toContain("my secret");
  });
});

describe("/v1/completions", () => {
  it("continues text as it is, marks included, and takes token ids", async () => {
    const { postJson, prompts } = testServer({ scripts: [{ tokens: ["x", "y"] }] });
    const body = await postJson("/v1/completions", { prompt: "a</think>", logprobs: 1, max_tokens: 5 });
    expect(body).toMatchObject({
      object: "text_completion",
      choices: [{ text: "xy", finish_reason: "stop", logprobs: { tokens: ["x", "y"], text_offset: [0, 1] } }],
      usage: { completion_tokens: 2 },
    });
    expect(prompts()[0]).toBe(`${tokenizer.tokenText(tokenizer.bosId)}a</think>`);
    await postJson("/v1/completions", { prompt: [tokenizer.bosId, 5] });
    expect(prompts()[1]).toBe(tokenizer.decode([tokenizer.bosId, 5]));
    for (const prompt of [[], ["a", "b"], [99_999_999], 5]) {
      expect(await postJson("/v1/completions", { prompt })).toHaveProperty("error.param", "prompt");
    }
  });
});
