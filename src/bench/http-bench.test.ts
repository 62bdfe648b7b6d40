// The HTTP bench against a small local server whose clock is the client's: the server waits until each piece has
// arrived before time goes on, so that the figures are exact on any machine.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { CancelledError, UsageError } from "../core/errors.ts";
import { NetworkError } from "../net/http-request.ts";
import type { FrontierRow } from "./frontier-bench.ts";
import { openServer, runHttpBench } from "./http-bench.ts";

let server: Server | undefined;
afterEach(async () => {
  server?.closeAllConnections();
  await new Promise((resolve) => server?.close(resolve) ?? resolve(undefined));
});

interface Completion {
  prompt: string;
  max_tokens: number;
  ignore_eos?: boolean;
  stream_options?: unknown;
}

type Answer = (request: Completion, response: ServerResponse) => void | Promise<void>;

async function listen(answer: Answer): Promise<string> {
  server = createServer(async (request: IncomingMessage, response) => {
    if (request.url === "/v1/models") {
      response.end(JSON.stringify({ object: "list", data: [{ id: "fake-model" }] }));
      return;
    }
    let body = "";
    for await (const part of request) body += part;
    await answer(JSON.parse(body), response);
  });
  await new Promise<void>((resolve) => server!.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server!.address() as AddressInfo).port}`;
}

const clock = { ms: 0 };
let arrived: () => void = () => {};
const options = {
  ...{ ctxStart: 100, ctxMax: 200, stepIncr: 100, stepMul: 1, genTokens: 4 },
  makePrompt: (count: number, variant: number) => `${variant} `.padEnd(count, "x"),
  now: () => clock.ms,
  onProgress: () => arrived(),
};

/** 1 ms a prompt character, 20 ms a token, two tokens in the third piece when the usage says so. */
function timedServer(seen: Completion[], usage: boolean): Answer {
  return async (request, response) => {
    seen.push(request);
    response.writeHead(200, { "content-type": "text/event-stream" });
    clock.ms += request.prompt.length;
    for (let token = 0; token < request.max_tokens; token++) {
      if (token > 0) clock.ms += 20;
      const reached = new Promise<void>((resolve) => {
        arrived = resolve;
      });
      response.write(`data: ${JSON.stringify({ choices: [{ text: "a" }] })}\n\n`);
      await reached;
    }
    if (usage) {
      const counts = {
        prompt_tokens: 90,
        completion_tokens: 7,
        prompt_tokens_details: { cached_tokens: 10 },
      };
      response.write(`data: ${JSON.stringify({ choices: [], usage: counts })}\n\n`);
    }
    response.end("data: [DONE]\n\n");
  };
}

test("known delays are reported exactly; no two prompts share a start", async () => {
  const seen: Completion[] = [];
  const found = await openServer(`${await listen(timedServer(seen, false))}/`);
  expect(found.model).toBe("fake-model");
  const shown: FrontierRow[] = [];
  const { rows, repeat } = await runHttpBench(found, { ...options, onRow: (row) => shown.push(row) });
  expect(rows).toEqual(shown);
  expect(rows.map((row) => [row.ctxTokens, row.prefillTokens, row.ttftMs, row.prefillTps])).toEqual([
    [100, 100, 100, 1000],
    [200, 200, 200, 1000],
  ]);
  expect(rows[0]).toMatchObject({
    genTokens: 4,
    genTps: 50,
    genSteadyTokens: 3,
    gapMedianMs: 20,
    gapMaxMs: 20,
  });
  expect(repeat).toEqual(rows[0]);
  expect(new Set(seen.map(({ prompt }) => prompt.slice(0, 2))).size).toBe(4); // warm-up, two contexts, repeat
  expect(seen.every(({ ignore_eos }) => ignore_eos === true)).toBe(true);
});

test("the server's own counts win over ours", async () => {
  const found = await openServer(`${await listen(timedServer([], true))}/v1`);
  const { rows } = await runHttpBench(found, options);
  // 90 prompt tokens of which 10 were cached in 100 ms; 6 tokens after the first in 60 ms.
  expect(rows[0]).toMatchObject({ prefillTokens: 80, prefillTps: 800, genTokens: 7, genTps: 100 });
});

test("a server that refuses the extensions is asked without them", async () => {
  const seen: Completion[] = [];
  const strict: Answer = async (request, response) => {
    if (request.ignore_eos !== undefined) {
      response.writeHead(400).end('{"error":{"message":"unknown field ignore_eos"}}');
      return;
    }
    await timedServer(seen, false)(request, response);
  };
  const { rows } = await runHttpBench(await openServer(await listen(strict)), options);
  expect(rows).toHaveLength(2);
  expect(seen.every((request) => request.stream_options === undefined)).toBe(true);
});

test.each<[string, Answer, RegExp]>([
  ["busy", (_, response) => void response.writeHead(503).end("queue full"), /answered 503: queue full/],
  ["without text", (_, response) => void response.end("data: [DONE]\n\n"), /held no text/],
  ["not JSON", (_, response) => void response.end("data: hello\n\n"), /not JSON: "hello"/],
  [
    "in error",
    (_, response) => void response.end('data: {"error":{"message":"out of memory"}}\n\n'),
    /out of memory/,
  ],
  [
    "breaking off",
    (_, response) => {
      response.write('data: {"choices":[{"text":"a"}]}\n\n');
      setTimeout(() => response.destroy(), 20);
    },
    /127\.0\.0\.1/,
  ],
])("a server that is %s gives one clear error", async (_name, answer, message) => {
  const found = await openServer(await listen(answer));
  const run = runHttpBench(found, options);
  await expect(run).rejects.toThrow(NetworkError);
  await expect(run).rejects.toThrow(message);
});

test("an address that is none, nobody listening, and nothing to generate are refused", async () => {
  await expect(openServer("ftp://host/")).rejects.toThrow(UsageError);
  const address = await listen(() => {});
  const found = await openServer(address);
  await expect(runHttpBench(found, { ...options, genTokens: 0 })).rejects.toThrow(UsageError);
  await new Promise((resolve) => server!.close(resolve));
  await expect(openServer(address)).rejects.toThrow(NetworkError);
});

test("a cancelled run ends while the server is silent", async () => {
  const controller = new AbortController();
  const found = await openServer(await listen(() => controller.abort()));
  const run = runHttpBench(found, { ...options, signal: controller.signal });
  await expect(run).rejects.toThrow(CancelledError);
});
