// The ollama package against the server's /api routes, over scripts and over a scripted backend.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { type Message, Ollama } from "ollama";
import { type ScriptedServer, scriptedServer } from "../../test/fixtures/scripted-server.ts";
import { AGAIN } from "../../test/fixtures/shell-script.ts";
import { callTokens, testHttpServer } from "../../test/fixtures/test-server.ts";

const PROOF = "proof 42 of project";
const tools = [
  {
    type: "function",
    function: {
      name: "bash",
      description: "Runs a command",
      parameters: { type: "object", properties: { command: { type: "string" } }, required: ["command"] },
    },
  },
];

describe("over scripts", () => {
  let server: Awaited<ReturnType<typeof testHttpServer>>;
  let ollama: Ollama;
  before(async () => {
    server = await testHttpServer();
    ollama = new Ollama({ host: server.url });
  });
  after(async () => {
    void server.http.stop();
    server.http.destroy();
  });
  const request = { model: "nano", messages: [{ role: "user", content: "Hi" }], think: true };

  it("lists models and versions", async () => {
    assert.deepEqual(
      (await ollama.list()).models.map(({ name }) => name),
      ["nano"],
    );
    assert.match((await ollama.version()).version, /^\d+\.\d+\.\d+/);
    assert.ok((await ollama.show({ model: "nano" })).capabilities.includes("tools"));
  });

  it("reads thinking, text and calls, whole and streamed, to the same end", async () => {
    server.source.play({
      tokens: ["Hm", " yes", "</think>", "Run", "ning", ".", ...callTokens("bash", "command", "ls")],
    });
    const whole = await ollama.chat({ ...request, tools });
    const joined = { thinking: "", content: "", calls: [] as unknown[], reason: "" };
    for await (const { message, done_reason } of await ollama.chat({ ...request, tools, stream: true })) {
      joined.thinking += message.thinking ?? "";
      joined.content += message.content;
      joined.calls.push(...(message.tool_calls ?? []));
      joined.reason = done_reason;
    }
    const { thinking, content, tool_calls } = whole.message;
    for (const result of [
      { thinking, content, calls: tool_calls!, reason: whole.done_reason },
      joined as { thinking: string; content: string; calls: typeof tool_calls & object; reason: string },
    ]) {
      assert.equal(result.thinking, "Hm yes");
      assert.equal(result.content, "Running.");
      assert.equal(result.reason, "stop");
      assert.deepEqual(
        result.calls.map(({ function: { name, arguments: args } }) => ({ name, args })),
        [{ name: "bash", args: { command: "ls" } }],
      );
    }
  });

  it("raises the server's words", async () => {
    const wrong = ollama.chat({ ...request, options: { temperature: 1e9 } });
    await assert.rejects(wrong, /temperature/);
  });

  it("stops the work when the reader aborts", async () => {
    server.source.play({ tokens: ["x"], isEndless: true, tokenMs: 5 });
    const stream = await ollama.chat({ ...request, stream: true });
    await assert.rejects(async () => {
      for await (const _ of stream) stream.abort();
    });
    for (let tries = 0; tries < 400 && server.source.running > 0; tries++)
      await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(server.source.running, 0);
  });
});

describe("over a scripted backend", () => {
  let server: ScriptedServer;
  before(async () => {
    server = await scriptedServer(new URL("../../test/fixtures/shell-script.ts", import.meta.url));
  });
  after(() => server.close());

  it("runs a tool loop of two questions, reusing everything that was evaluated", async () => {
    const ollama = new Ollama({ host: server.url });
    const messages: Message[] = [];
    const texts: string[] = [];
    for (const content of ["Write the file.", `Read it ${AGAIN}.`]) {
      messages.push({ role: "user", content });
      for (;;) {
        const { message } = await ollama.chat({ model: "x", messages, tools, think: true });
        messages.push(message);
        if (message.tool_calls === undefined) {
          texts.push(message.content);
          break;
        }
        messages.push({ role: "tool", tool_name: "bash", content: PROOF });
      }
    }
    assert.deepEqual(texts, [`First: the file says "${PROOF}".`, `Again: the file says "${PROOF}".`]);
    assert.equal(server.answers.length, 4);
    for (const [at, { reusedTokens }] of server.answers.slice(1).entries()) {
      const last = server.answers[at];
      assert.equal(reusedTokens, last.promptTokens + last.completionTokens, `request ${at + 2}`);
    }
  });
});
