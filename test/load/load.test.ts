// Many clients at once on a real server: streams that are read, left, cancelled and mistaken. Seeded. Short unless
// DS4_LOAD_SECONDS asks for more; DS4_LOAD_SEED takes another course.
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, it } from "vitest";
import { Random } from "../../src/core/random.ts";
import { killServers, type ServerProcess, startServer, stopServer } from "../fixtures/server-process.ts";
import { type LoadReport, readAnswer, runClients } from "./load-clients.ts";
import { loadRequests, malformedRequests } from "./load-requests.ts";
import { type ProcessUse, processUse, readMetrics, watchMemory } from "./process-use.ts";

const SECONDS = Number(process.env.DS4_LOAD_SECONDS ?? 12);
const SEED = Number(process.env.DS4_LOAD_SEED ?? 1);
const CLIENTS = 64;
/** What still runs down after the last answer does so in this time. */
const REST_MS = 3000;
/** A short run needs more of it: the compiler is at work and checkpoints are being filled. */
const WARM_UP_SHARE = SECONDS >= 120 ? 0.3 : 0.5;
/**
 * After the warm-up: how far any sample of resident memory under load may lie from the median of all, the median of the
 * last third from that of the first, and the process at rest from what it was before.
 */
const WANDER_LIMIT = 0.05;
const SAMPLE_MS = 250;
const FLAGS = ["--ctx", "512", "--threads", "1", "--max-queue", "56", "--checkpoint-mb", "16"];

afterEach(killServers);
const open = (...flags: string[]) => startServer([...FLAGS, ...flags]);

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
    const load = async (seconds: number, seed: number): Promise<LoadReport> => {
      const clients = { port: server.port, clients: CLIENTS, seed, requests, malformed: malformedRequests() };
      const report = await runClients({ ...clients, expected, untilMs: performance.now() + seconds * 1000 });
      expect(report.failures).toEqual([]);
      return report;
    };
    const cold = await settledUse(server);
    await load(WARM_UP_SHARE * SECONDS, SEED + 1000);
    const warm = await settledUse(server);
    const watch = watchMemory(server.child.pid!, SAMPLE_MS);
    const report = await load((1 - WARM_UP_SHARE) * SECONDS, SEED).finally(() => watch.stop());
    const after = await settledUse(server);
    const { finished, left, leftEarly, malformed } = report;
    expect(Math.min(finished, left, leftEarly, malformed)).toBeGreaterThanOrEqual(5);

    const metrics = await readMetrics(server.url);
    const memory = (name: string, region: string) => metrics.get(`ds4_${name}{region="${region}"}`)!;
    const plannedBytes = memory("memory_planned_bytes", "process");
    const { medianBytes, leastBytes, mostBytes, drift } = watch.figures();
    const figures = {
      samples: watch.samples.length,
      medianBytes,
      leastBytes,
      mostBytes,
      drift,
      plannedBytes,
    };
    if (process.env.DS4_LOAD_SECONDS !== undefined) console.log({ ...report, cold, warm, after, figures });
    expect(watch.samples.length).toBeGreaterThanOrEqual((SECONDS * 1000) / SAMPLE_MS / 10);
    expect(mostBytes / medianBytes).toBeLessThan(1 + WANDER_LIMIT);
    expect(leastBytes / medianBytes).toBeGreaterThan(1 - WANDER_LIMIT);
    expect(Math.abs(drift)).toBeLessThan(WANDER_LIMIT);
    expect(Math.max(mostBytes, after.rssBytes)).toBeLessThanOrEqual(plannedBytes);
    expect(after.rssBytes / warm.rssBytes).toBeLessThan(1 + WANDER_LIMIT);
    expect(after.handles).toBeLessThanOrEqual(cold.handles);
    expect(after.threads).toBeLessThanOrEqual(cold.threads);
    for (const region of ["weights", "kv_slots", "kv_checkpoints", "scratch"]) {
      expect(memory("memory_bytes", region), region).toBeGreaterThan(0);
      expect(memory("memory_bytes", region), region).toBeLessThanOrEqual(
        memory("memory_planned_bytes", region),
      );
    }
    expect(memory("memory_bytes", "weights")).toBe(memory("memory_planned_bytes", "weights"));
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
  (SECONDS + 280) * 1000,
);

/** What the server holds at rest: its answers have ended, their sockets are closed. */
async function settledUse({ child, url }: ServerProcess): Promise<ProcessUse> {
  for (let tries = 0; tries < 100; tries++) {
    const metrics = await readMetrics(url);
    if (metrics.get("ds4_answers_running") === 0 && metrics.get("ds4_answers_queued") === 0) break;
    await sleep(100);
  }
  await sleep(REST_MS);
  return processUse(child.pid!);
}
