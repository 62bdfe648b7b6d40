// How a server's life ends and what the next one finds: faults, signals, saved states.
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type OpenAI from "openai";
import { afterAll, afterEach, expect, it } from "vitest";
import { killServers, type ServerProcess, startServer } from "../fixtures/server-process.ts";

const folder = mkdtempSync(join(tmpdir(), "ds4-server-ends-"));
const PRELOAD = new URL("../fixtures/faulty-worker-preload.ts", import.meta.url).href;
afterEach(killServers);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it.each([
  ["lost", "fatal: the backend failed: the device fell off the bus"],
  ["exit", "fatal: the engine stopped"],
])("exits with 1 after a fatal fault, %s, and says so to clients and in the log", async (FAULT, line) => {
  const server = await startServer([], { nodeFlags: ["--import", PRELOAD], env: { FAULT } });
  const post = () =>
    fetch(`${server.url}/v1/completions`, {
      method: "POST",
      // Greedy: a drawn answer may end before the fault.
      body: JSON.stringify({ prompt: [5, 6, 7], max_tokens: 500, temperature: 0 }),
    });
  const response = await post();
  expect([500, 503]).toContain(response.status);
  expect(await response.json()).toHaveProperty("error.message");
  expect(await server.exited).toBe(1);
  expect(server.log()).toContain(line);
});

const question = "What is the capital of France?";
const long = `${"Paris is a city. Rome is a city too. ".repeat(60)}${question}`;
async function turn({ openai }: ServerProcess, messages: OpenAI.ChatCompletionMessageParam[]) {
  const request = { model: "m", messages, temperature: 0, reasoning_effort: "none" as const, max_tokens: 12 };
  const { choices, usage } = await openai.chat.completions.create(request);
  messages.push(choices[0].message, { role: "user", content: question });
  return { prompt: usage!.prompt_tokens, cached: usage!.prompt_tokens_details!.cached_tokens! };
}

it.each(["SIGKILL", "SIGTERM"] as const)(
  "goes on after %s and a restart where the conversation was (case 114)",
  async (signal) => {
    const disk = join(folder, signal);
    const flags = ["--ctx", "2048", "--kv-disk-dir", disk];
    const first = await startServer(flags);
    const other: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: `Another one. ${long}` }];
    const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: long }];
    await turn(first, other);
    const { prompt, cached } = await turn(first, messages);
    expect(cached).toBeLessThan(8);
    if (signal === "SIGKILL")
      // Files are written beside the answers.
      for (let tries = 0; tries < 200 && states(disk) < 2; tries++)
        await new Promise((resolve) => setTimeout(resolve, 20));
    expect(states(disk)).toBeGreaterThanOrEqual(signal === "SIGKILL" ? 2 : 0);
    first.child.kill(signal);
    expect(await first.exited).toBe(signal === "SIGKILL" ? null : 0);
    const second = await startServer(flags);
    const next = await turn(second, messages);
    expect(next.cached).toBeGreaterThanOrEqual(prompt - 4);
  },
);

function states(disk: string): number {
  const names = readdirSync(disk, { recursive: true, encoding: "utf8" });
  return names.filter((name) => name.endsWith(".ds4kv")).length;
}

it("warns when anyone on the network can use it, unless there is a key (case 90)", async () => {
  const open = await startServer(["--host", "0.0.0.0"]);
  expect(open.log()).toMatch(/warning: 0\.0\.0\.0 is open to the network and no --api-key is set/);
  const closed = await startServer(["--host", "0.0.0.0", "--api-key", "sk-test"]);
  expect(closed.log()).not.toContain("open to the network");
});
