// Requests in the form of Open WebUI's, from its public source: the program itself is not run here.
import { expect, it } from "vitest";
import { type Json, sseData, testServer } from "../fixtures/test-server.ts";

const headers = {
  authorization: "Bearer sk-test",
  "x-openwebui-user-name": "Ada",
  "x-openwebui-user-id": "1",
  "x-openwebui-chat-id": "c1",
};
const server = () =>
  testServer({
    apiKeys: ["sk-test"],
    scripts: [{ tokens: ["Hm", "</think>", "Hello", "!"], reusedTokens: 2 }],
  });

it("serves its OpenAI connection: the list, a chat, a title", async () => {
  const { app, post } = server();
  const list = await (await app.request("/v1/models", { headers })).json();
  expect(list).toMatchObject({ data: [{ id: "nano" }] });
  const chat = await post(
    "/v1/chat/completions",
    {
      stream: true,
      model: "nano",
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: [{ type: "text", text: "Hi" }] },
      ],
      stream_options: { include_usage: true },
      temperature: 0.7,
      top_p: 0.9,
      max_tokens: 500,
      frequency_penalty: 0,
      seed: 1,
      stop: ["never"],
    },
    headers,
  );
  const chunks = await sseData(chat);
  const deltas = chunks.filter((chunk) => chunk.choices?.length > 0).map(({ choices }) => choices[0].delta);
  expect(deltas.map(({ reasoning_content: text }) => text ?? "").join("")).toBe("Hm");
  expect(deltas.map(({ content }) => content ?? "").join("")).toBe("Hello!");
  expect(chunks.at(-2).usage).toMatchObject({ prompt_tokens_details: { cached_tokens: 2 } });
  expect(chunks.at(-1)).toBe("[DONE]");
  const title = { model: "nano", messages: [{ role: "user", content: "Title?" }], stream: false };
  const answer: Json = await (
    await post("/v1/chat/completions", { ...title, max_completion_tokens: 1000 }, headers)
  ).json();
  expect(answer.choices[0].message).toMatchObject({ content: "Hello!", reasoning_content: "Hm" });
});

it("serves its Ollama connection: version, lists, a chat, and errors as text", async () => {
  const { app, post } = server();
  expect(await (await app.request("/api/version", { headers })).json()).toHaveProperty("version");
  const [tags, running]: Json[] = await Promise.all(
    ["/api/tags", "/api/ps"].map(async (path) => (await app.request(path, { headers })).json()),
  );
  expect(tags.models[0].model).toBe("nano");
  expect(running.models[0].name).toBe(tags.models[0].name);
  expect(Number.isNaN(Date.parse(running.models[0].expires_at))).toBe(false);
  const chat = await post(
    "/api/chat",
    {
      model: "nano",
      messages: [{ role: "user", content: "Hi" }],
      stream: true,
      think: true,
      keep_alive: "5m",
      options: {
        ...{ temperature: 0.7, top_p: 0.9, top_k: 40, min_p: 0, seed: 1, num_predict: 500, num_ctx: 4096 },
        ...{
          repeat_penalty: 1.1,
          repeat_last_n: 64,
          mirostat: 0,
          tfs_z: 1,
          num_gpu: 1,
          num_thread: 2,
          stop: ["x"],
        },
      },
    },
    headers,
  );
  const lines = (await chat.text())
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(lines.map(({ message }) => message.thinking ?? "").join("")).toBe("Hm");
  expect(lines.map(({ message }) => message.content).join("")).toBe("Hello!");
  expect(lines.at(-1)).toMatchObject({ done: true, done_reason: "stop", eval_count: 4 });
  const wrong = await post("/api/chat", { model: "nano", messages: [], options: {} }, headers);
  expect([wrong.status, await wrong.json()]).toEqual([400, { error: expect.stringContaining("messages") }]);
});
