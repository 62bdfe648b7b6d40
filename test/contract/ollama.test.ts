// The ollama package against the server's /api routes, over scripts and over a scripted backend.
import { type Message, Ollama } from "ollama";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { type ScriptedServer, scriptedServer } from "../fixtures/scripted-server.ts";
import { AGAIN } from "../fixtures/shell-script.ts";
import { callTokens, testHttpServer } from "../fixtures/test-server.ts";

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
  beforeAll(async () => {
    server = await testHttpServer();
    ollama = new Ollama({ host: server.url });
  });
  afterAll(async () => {
    void server.http.stop();
    server.http.destroy();
  });
  const request = { model: "nano", messages: [{ role: "user", content: "Hi" }], think: true };

  it("lists models and versions", async () => {
    expect((await ollama.list()).models.map(({ name }) => name)).toEqual(["nano"]);
    expect((await ollama.version()).version).toMatch(/^\d+\.\d+\.\d+/);
    expect((await ollama.show({ model: "nano" })).capabilities).toContain("tools");
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
      expect(result.thinking).toBe("Hm yes");
      expect(result.content).toBe("Running.");
      expect(result.reason).toBe("stop");
      expect(result.calls.map(({ function: { name, arguments: args } }) => ({ name, args }))).toEqual([
        { name: "bash", args: { command: "ls" } },
      ]);
    }
  });

  it("raises the server's words", async () => {
    const wrong = ollama.chat({ ...request, options: { temperature: 1e9 } });
    await expect(wrong).rejects.toThrow(/temperature/);
  });

  it("stops the work when the reader aborts", async () => {
    server.source.play({ tokens: ["x"], isEndless: true, tokenMs: 5 });
    const stream = await ollama.chat({ ...request, stream: true });
    const reading = (async () => {
      for await (const _ of stream) stream.abort();
    })();
    await expect(reading).rejects.toThrow();
    await vi.waitFor(() => expect(server.source.running).toBe(0), { timeout: 4000, interval: 10 });
  });
});

describe("over a scripted backend", () => {
  let server: ScriptedServer;
  beforeAll(async () => {
    server = await scriptedServer(new URL("../fixtures/shell-script.ts", import.meta.url));
  });
  afterAll(() => server.close());

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
    expect(texts).toEqual([`First: the file says "${PROOF}".`, `Again: the file says "${PROOF}".`]);
    expect(server.answers.length).toBe(4);
    for (const [at, { reusedTokens }] of server.answers.slice(1).entries()) {
      const last = server.answers[at];
      expect(reusedTokens, `request ${at + 2}`).toBe(last.promptTokens + last.completionTokens);
    }
  });
});
