// `ds4-server` as a process, over the bundled model: the SDK talks to it, a signal ends it.
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type OpenAI from "openai";
import { afterAll, afterEach, expect, it } from "vitest";
import { killServers, startServer } from "../fixtures/server-process.ts";

const folder = mkdtempSync(join(tmpdir(), "ds4-server-"));
afterEach(killServers);
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const start = (...flags: string[]) => startServer(flags);

const question = { role: "user" as const, content: "What is the capital of France?" };
const ask = { model: "m", messages: [question], temperature: 0, reasoning_effort: "none" as const };

it("answers, reuses the prompt on a second turn, and ends on SIGTERM with its state saved (cases 101, 114)", async () => {
  const disk = join(folder, "kv");
  const first = await start("--kv-disk-dir", disk);
  const answer = await first.openai.chat.completions.create(ask);
  expect(answer.choices[0].message.content).toBe("The capital of France is Paris.");
  expect(answer.model).toBe("nano-q2-q4");
  const [again, streamed] = await Promise.all([
    first.openai.chat.completions.create(ask),
    first.openai.chat.completions.stream(ask).finalContent(),
  ]);
  expect(again.choices[0].message.content).toBe("The capital of France is Paris.");
  expect(streamed).toBe("The capital of France is Paris.");
  const cached = again.usage?.prompt_tokens_details?.cached_tokens ?? 0;
  expect(cached).toBeGreaterThanOrEqual(again.usage!.prompt_tokens - 4);
  const metrics = await (await fetch(`${first.url}/metrics`)).text();
  expect(metrics).toContain('ds4_answers_total{outcome="finished"} 3');
  const weights = /^ds4_memory_bytes\{region="weights"\} ([1-9]\d*)$/m.exec(metrics)?.[1];
  expect(metrics).toContain(`ds4_memory_planned_bytes{region="weights"} ${weights}\n`);
  expect(metrics).toMatch(/^ds4_memory_planned_bytes\{region="process"\} [1-9]/m);
  expect(metrics).toMatch(/^ds4_process_resident_bytes [1-9]/m);
  first.child.kill("SIGTERM");
  expect(await first.exited).toBe(0);
  expect(readdirSync(disk)).toContain("answers.bin");
  expect(first.log()).not.toContain("capital");
});

it("lets a running answer end before it stops, and refuses wrong flags", async () => {
  const server = await start();
  const stream = await server.openai.chat.completions.create({ ...ask, stream: true });
  let text = "";
  let isAsked = false;
  for await (const chunk of stream) {
    if (!isAsked) server.child.kill("SIGTERM"); // a second signal would not wait
    isAsked = true;
    text += chunk.choices[0].delta.content ?? "";
  }
  expect(text).toBe("The capital of France is Paris.");
  expect(await server.exited).toBe(0);
  await expect(start("--api-key-file", join(folder, "missing"))).rejects.toThrow(/exit 2: .*--api-key-file/s);
  await expect(start("--cors", "everyone")).rejects.toThrow(/exit 2: .*Expected an origin/s);
  await expect(start("--host", "256.0.0.1")).rejects.toThrow(/exit 2: .*cannot listen/s);
});

it("re-reads only what is new in each tool round (cases 97, 98)", async () => {
  const { openai } = await start();
  const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const tool = { name: "get_weather", description: "Get the weather in a city.", parameters: city };
  const tools = [{ type: "function" as const, function: tool }];
  const messages: OpenAI.ChatCompletionMessageParam[] = [
    { role: "user", content: "What is the weather in Paris?" },
  ];
  let knownTokens = 0;
  for (let round = 0; round < 3; round++) {
    const { choices, usage } = await openai.chat.completions.create({ ...ask, messages, tools });
    const cached = usage!.prompt_tokens_details!.cached_tokens!;
    // All of the round before, up to a stop token that was sampled but not evaluated.
    expect(cached).toBeGreaterThanOrEqual(knownTokens - 4);
    knownTokens = usage!.prompt_tokens + usage!.completion_tokens;
    const [{ message }] = choices;
    messages.push(message);
    if (round === 0) expect(message.tool_calls).toHaveLength(1);
    for (const { id } of message.tool_calls ?? []) {
      messages.push({ role: "tool", tool_call_id: id, content: '{"weather": "sunny"}' });
    }
    if (!message.tool_calls) messages.push({ role: "user", content: "What is the weather in Rome?" });
  }
});
