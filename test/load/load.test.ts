// Many clients at once on a real server: streams that are read, left, cancelled and mistaken. Seeded. Short unless
// DS4_LOAD_SECONDS asks for more; DS4_LOAD_SEED takes another course.
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, it } from "vitest";
import { Random } from "../../src/core/random.ts";
import { readAnswer, runClients } from "./load-clients.ts";
import { loadRequests, malformedRequests } from "./load-requests.ts";
import {
  type ProcessUse,
  processUse,
  readMetrics,
  type ServerProcess,
  startServer,
  stopServer,
} from "./server-process.ts";

const SECONDS = Number(process.env.DS4_LOAD_SECONDS ?? 15);
const SEED = Number(process.env.DS4_LOAD_SEED ?? 1);
const CLIENTS = 64;
const SAMPLE_MS = 250;
/** Growth of resident memory after the first third. In a short run V8's heap still finds its size. */
const GROWTH_LIMIT = SECONDS >= 120 ? 1.05 : 1.15;
const FLAGS = ["--ctx", "512", "--threads", "1", "--max-queue", "56", "--checkpoint-mb", "16"];

const servers: ServerProcess[] = [];
afterEach(() => {
  for (const { child } of servers.splice(0)) child.kill("SIGKILL");
});
async function open(...flags: string[]): Promise<ServerProcess> {
  const server = await startServer(...FLAGS, ...flags);
  servers.push(server);
  return server;
}

const requests = loadRequests(new Random(SEED));

it(
  `${CLIENTS} clients for ${SECONDS} s: right answers, nothing leaks, nothing is left behind (case 112)`,
  async () => {
    const alone = await open("--slots", "1", "--checkpoint-mb", "0");
    const expected = new Map<string, string>();
    for (const request of requests) expected.set(request.name, (await readAnswer(alone.port, request)).text);
    await stopServer(alone);
    expect(new Set(expected.values()).size).toBeGreaterThan(requests.length / 2); // or crossing would not show

    const server = await open("--slots", "4");
    const before = await settledUse(server);
    const samples: ProcessUse[] = [];
    const sampler = setInterval(() => samples.push(processUse(server.child.pid!)), SAMPLE_MS);
    const untilMs = performance.now() + SECONDS * 1000;
    const clients = {
      clients: CLIENTS,
      seed: SEED,
      requests,
      malformed: malformedRequests(),
      expected,
      untilMs,
    };
    const report = await runClients({ port: server.port, ...clients }).finally(() => clearInterval(sampler));
    expect(report.failures).toEqual([]);
    const { finished, left, leftEarly, malformed } = report;
    expect(Math.min(finished, left, leftEarly, malformed)).toBeGreaterThanOrEqual(5);

    const after = await settledUse(server);
    const metrics = await readMetrics(server.url);
    console.log({ ...report, before, after, growth: growthOf(samples) });
    expect(growthOf(samples)).toBeLessThan(GROWTH_LIMIT);
    expect(after.handles).toBeLessThanOrEqual(before.handles);
    expect(after.threads).toBeLessThanOrEqual(before.threads);
    const zero = [
      "ds4_answers_running",
      "ds4_answers_queued",
      "ds4_scheduler_queue_length",
      "ds4_forward_faults",
    ];
    expect(zero.map((name) => [name, metrics.get(name)])).toEqual(zero.map((name) => [name, 0]));
    const slots = [...metrics.keys()].filter((name) => name.startsWith("ds4_slot_tokens"));
    expect(slots).toHaveLength(4);
    for (const slot of slots) expect(slot).toMatch(/state="(idle|empty)"/);
    expect(metrics.get('ds4_answers_total{outcome="failed"}')).toBe(0);
    expect(metrics.get('ds4_answers_total{outcome="finished"}')).toBeGreaterThanOrEqual(report.finished);
    for (const request of requests) {
      expect((await readAnswer(server.port, request)).text).toBe(expected.get(request.name));
    }
    expect(
      server
        .log()
        .split("\n")
        .filter((line) => /internal error|answer failed|fatal/.test(line)),
    ).toEqual([]);
    expect(await stopServer(server)).toBe(0);
  },
  (SECONDS + 120) * 1000,
);

/** What the server holds once its answers have ended and their sockets are closed. */
async function settledUse({ child, url }: ServerProcess): Promise<ProcessUse> {
  for (let tries = 0; tries < 100; tries++) {
    const metrics = await readMetrics(url);
    if (metrics.get("ds4_answers_running") === 0 && metrics.get("ds4_answers_queued") === 0) break;
    await sleep(100);
  }
  await sleep(500);
  return processUse(child.pid!);
}

/** Resident memory at the end over that after the first third, both as medians of a tenth of the run. */
function growthOf(samples: readonly ProcessUse[]): number {
  const tenth = Math.max(1, Math.floor(samples.length / 10));
  const third = Math.floor(samples.length / 3);
  return median(samples.slice(-tenth)) / median(samples.slice(third, third + tenth));
}

function median(samples: readonly ProcessUse[]): number {
  const bytes = samples.map(({ rssBytes }) => rssBytes).sort((a, b) => a - b);
  return bytes[bytes.length >> 1];
}
