import { connect } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { callTokens, testHttpServer } from "../../test/fixtures/test-server.ts";
import { listen } from "./http-server.ts";

type Server = Awaited<ReturnType<typeof testHttpServer>>;
const servers: Server[] = [];
async function open(options: Parameters<typeof testHttpServer>[0] = {}): Promise<Server> {
  const server = await testHttpServer(options);
  servers.push(server);
  return server;
}
afterEach(() => {
  for (const { http } of servers.splice(0)) http.destroy();
});

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
async function until(isTrue: () => boolean, everyMs = 10): Promise<void> {
  for (let tries = 0; tries < 500; tries++) {
    if (isTrue()) return;
    await sleep(everyMs);
  }
  throw new Error("it never came true");
}
const body = (fields: object = {}) =>
  JSON.stringify({ messages: [{ role: "user", content: "Hi" }], ...fields });
const post = (server: Server, path: string, fields: object, signal?: AbortSignal) =>
  fetch(server.url + path, { method: "POST", body: body(fields), signal });

/** Sends bytes, returns everything that comes until the server closes. */
function raw(port: number, text: string, drip?: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(text));
    let received = "";
    const timer = drip === undefined ? undefined : setInterval(() => socket.write(drip), 50);
    socket.on("data", (chunk) => {
      received += chunk;
    });
    socket.on("error", () => {});
    socket.on("close", () => {
      clearInterval(timer);
      resolve(received);
    });
  });
}

/** Times between the pieces of a stream and what the pieces were. */
async function pieces(response: Response): Promise<{ gapsMs: number[]; text: string }> {
  const gapsMs: number[] = [];
  let text = "";
  let last = performance.now();
  for await (const chunk of response.body!) {
    gapsMs.push(performance.now() - last);
    last = performance.now();
    text += new TextDecoder().decode(chunk);
  }
  return { gapsMs, text };
}

describe("framing and slow clients (case 92)", () => {
  const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n";

  it.each([
    ["two lengths", `${head}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello`],
    ["length and chunked", `${head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
    ["bare line feeds", "POST /v1/chat/completions HTTP/1.1\nHost: localhost\nContent-Length: 2\n\n{}"],
    ["a space before the colon", `${head}Content-Length : 2\r\n\r\n{}`],
    ["a signed length", `${head}Content-Length: +2\r\n\r\n{}`],
    ["a list of lengths", `${head}Content-Length: 2, 2\r\n\r\n{}`],
    ["a coding that is none", `${head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`],
    ["chunked, but not last", `${head}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n`],
    ["chunked twice", `${head}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n`],
    ["a folded header", `${head}X-A: 1\r\n Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}`],
    ["a zero byte in a header", `${head}X-A: 1\u00002\r\nContent-Length: 2\r\n\r\n{}`],
    ["no host", "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"],
  ])("refuses %s", async (_, request) => {
    const { http, source } = await open();
    expect(await raw(http.port, request)).toMatch(/^HTTP\/1\.1 400 /);
    expect(source.requests).toHaveLength(0);
  });

  it("reads a broken chunk size as no request, and nothing behind it", async () => {
    const { http, source } = await open();
    const hidden = `${head}Content-Length: ${body().length}\r\n\r\n${body()}`;
    const answer = await raw(
      http.port,
      `${head}Transfer-Encoding: chunked\r\n\r\n2x\r\n{}\r\n0\r\n\r\n${hidden}`,
    );
    expect(answer.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 400"]);
    expect(source.requests).toHaveLength(0);
  });

  it("forgets a request that is cut off in its body, without a word of an internal error", async () => {
    const { http, source, lines } = await open();
    const socket = connect(http.port, "127.0.0.1");
    socket.write(`${head}Content-Length: ${body().length}\r\n\r\n${body().slice(0, -5)}`);
    await sleep(100);
    socket.resetAndDestroy();
    await until(() => lines.some((line) => / 499 /.test(line)));
    expect(lines.join("\n")).not.toContain("internal error");
    expect(source.requests).toHaveLength(0);
  });

  it("refuses headers above 32 KiB", async () => {
    const { http } = await open();
    expect(await raw(http.port, `${head}X-Long: ${"a".repeat(65 * 1024)}\r\n\r\n`)).toMatch(
      /^HTTP\/1\.1 431 /,
    );
  });

  it("closes on headers and bodies that drip", async () => {
    const times = { headersTimeoutMs: 300, requestTimeoutMs: 600, timeoutCheckMs: 50 };
    const { http } = await open({ listen: times });
    const started = performance.now();
    const headers = raw(http.port, head, "X: 1\r\n");
    const dripping = raw(http.port, `${head}Content-Length: 100000\r\n\r\n`, "x");
    expect(await headers).toMatch(/^HTTP\/1\.1 408 /);
    await dripping;
    expect(performance.now() - started).toBeLessThan(5000);
  });

  it("says why it cannot listen", async () => {
    const { http, app } = await open();
    await expect(listen(app, { host: "127.0.0.1", port: http.port })).rejects.toThrow(/in use.*--port/);
  });
});

describe("streams that wait", () => {
  it("sends headers at once and comments while the prompt is read (cases 77, 78)", async () => {
    const server = await open({
      scripts: [{ tokens: ["</think>", "x"], prefillMs: 3000 }],
      keepAliveMs: 100,
    });
    const response = await post(server, "/v1/chat/completions", { stream: true });
    expect(server.source.tokensMade).toBe(0);
    const { text } = await pieces(response);
    expect(text.match(/^: keep-alive$/gm)?.length).toBeGreaterThanOrEqual(3);
    const invalid = await post(server, "/v1/chat/completions", { stream: true, messages: 5 });
    expect([invalid.status, invalid.headers.get("content-type")]).toEqual([400, "application/json"]);
  });

  it("starts a message and pings while the prompt is read (case 79)", async () => {
    const server = await open({ scripts: [{ tokens: ["x"], prefillMs: 600 }], keepAliveMs: 100 });
    const { text } = await pieces(await post(server, "/v1/messages", { stream: true, max_tokens: 5 }));
    const names = [...text.matchAll(/^event: (.*)$/gm)].map(([, name]) => name);
    expect(names[0]).toBe("message_start");
    expect(names.filter((name) => name === "ping").length).toBeGreaterThanOrEqual(3);
    expect(names.at(-1)).toBe("message_stop");
  });

  it("is never silent for long while a call is written or thinking is hidden (case 80)", async () => {
    const call = callTokens("bash", "command", "x".repeat(80));
    const server = await open({ scripts: [{ tokens: call, tokenMs: 60 }], keepAliveMs: 150 });
    const tools = {
      openai: [{ type: "function", function: { name: "bash" } }],
      plain: [{ name: "bash", input_schema: {} }],
    };
    const silences = [
      post(server, "/v1/chat/completions", { stream: true, reasoning_effort: "none", tools: tools.openai }),
      post(server, "/v1/messages", { stream: true, tools: tools.plain }),
      post(server, "/v1/messages", { stream: true, thinking: { type: "adaptive", display: "omitted" } }),
    ].map(async (response) => Math.max(...(await pieces(await response)).gapsMs));
    for (const silence of silences) expect(await silence).toBeLessThan(1500);
  });
});

describe("clients that leave", () => {
  it("ends the prompt's evaluation (case 81) and unstreamed answers (case 83)", async () => {
    const server = await open({ scripts: [{ tokens: ["x"], isEndless: true, tokenMs: 20, prefillMs: 300 }] });
    for (const fields of [{ stream: true }, {}]) {
      for (const waitMs of [100, 500]) {
        const controller = new AbortController();
        const before = server.source.cancelled;
        const answer = post(server, "/v1/chat/completions", fields, controller.signal).then((r) => r.text());
        await until(() => server.source.running === 1);
        await sleep(waitMs);
        controller.abort();
        await expect(answer).rejects.toThrow();
        await until(() => server.source.running === 0);
        expect(server.source.cancelled).toBe(before + 1);
      }
    }
  });

  it("computes nothing for those that leave the queue (case 82)", async () => {
    const server = await open({ scripts: [{ tokens: ["x"], tokenMs: 800 }] });
    const first = post(server, "/v1/chat/completions", {});
    await until(() => server.source.running === 1);
    const controllers = [1, 2, 3, 4].map(() => new AbortController());
    const left = controllers.map(({ signal }) => post(server, "/v1/chat/completions", {}, signal));
    const stays = post(server, "/v1/chat/completions", {});
    await until(() => server.state.runner?.admission.queued === 5);
    for (const controller of controllers) controller.abort();
    for (const request of left) await expect(request).rejects.toThrow();
    expect([(await first).status, (await stays).status]).toEqual([200, 200]);
    expect(server.source.requests).toHaveLength(2);
  });

  it("refuses more than may wait with 429 and a time, before any stream", async () => {
    const server = await open({ scripts: [{ tokens: ["x"], tokenMs: 500 }], maxQueued: 1 });
    const first = post(server, "/v1/chat/completions", {});
    await until(() => server.source.running === 1);
    const second = post(server, "/v1/chat/completions", {});
    await until(() => server.state.runner?.admission.queued === 1);
    for (const path of ["/v1/chat/completions", "/v1/messages", "/v1/completions"]) {
      const refused = await post(server, path, { stream: true, prompt: "x" });
      expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "2"]);
    }
    expect([(await first).status, (await second).status]).toEqual([200, 200]);
  });

  it("a slow reader holds back the script, not the other way round", async () => {
    const text = "x".repeat(16_384);
    const server = await open({ scripts: [{ tokens: [text], isEndless: true }], model: { concurrency: 2 } });
    const socket = connect(server.http.port, "127.0.0.1");
    const request = body({ stream: true });
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${request.length}\r\n\r\n${request}`,
    );
    socket.pause();
    await until(() => server.source.tokensMade > 10);
    // It fills what sockets buffer, and then stands still.
    let made = 0;
    await until(() => {
      const isStill = made === server.source.tokensMade;
      made = server.source.tokensMade;
      return isStill;
    }, 400);
    expect(made).toBeLessThan(4000);
    // Others go on meanwhile.
    server.source.play({ tokens: ["</think>", "fine"] });
    const other = await (await post(server, "/v1/chat/completions", { stream: true })).text();
    expect(other).toContain("fine");
    socket.destroy();
    await until(() => server.source.running === 0);
  });

  it("gives the port back when it is destroyed, so that a failed start ends the process", async () => {
    const { http } = await open();
    expect((await fetch(`${http.url}/health`)).status).toBe(200);
    http.destroy();
    await expect(fetch(`${http.url}/health`)).rejects.toThrow("fetch failed");
  });
});
