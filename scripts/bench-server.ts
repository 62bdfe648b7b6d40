// What the HTTP server costs: the same requests at once through the engine itself and through HTTP streams, over one
// loaded model. Rounds take turns, so that a slow spell of the machine hits both. Clients are a process of their own, which
// reads bytes and parses nothing.
// Usage: node scripts/bench-server.ts [-m FILE] [--clients 8] [--slots 8] [--prompt 16] [--gen 96] [--rounds 7] [--warm-up 4]
//          [--threads N] [--api completions|chat] [--json]
import { spawn } from "node:child_process";
import { Agent, request as httpRequest } from "node:http";
import { availableParallelism } from "node:os";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { openModel, resolveModelPath } from "../src/api/open-model.ts";
import { formatTable } from "../src/bench/bench-report.ts";
import { Random } from "../src/core/random.ts";
import { SchedulerEngine } from "../src/scheduler/scheduler-engine.ts";
import { AnswerRunner, type PreparedAnswer } from "../src/server/answer-run.ts";
import { createApp } from "../src/server/app.ts";
import { listen } from "../src/server/http-server.ts";
import { ServerMetrics } from "../src/server/metrics.ts";
import { ALL_ROUTES } from "../src/server/routes/all-routes.ts";
import { SILENT_LOG } from "../src/server/server-log.ts";
import { ServerState } from "../src/server/server-state.ts";
import { chatJob } from "../src/server/wire/openai-chat.ts";
import { completionJob } from "../src/server/wire/openai-completions.ts";

const { values } = parseArgs({
  options: {
    model: { type: "string", short: "m" },
    clients: { type: "string", default: "8" },
    slots: { type: "string", default: "8" },
    prompt: { type: "string", default: "16" },
    gen: { type: "string", default: "96" },
    rounds: { type: "string", default: "7" },
    "warm-up": { type: "string", default: "4" },
    threads: { type: "string", default: String(availableParallelism()) },
    api: { type: "string", default: "completions" },
    json: { type: "boolean", default: false },
    client: { type: "string" },
  },
});
// Rounds that do not count: V8 compiles the server's path within some thousand tokens.
const warmUpRounds = Number(values["warm-up"]);
const [clients, slots, promptTokens, genTokens, rounds, threads] = [
  ...[values.clients, values.slots, values.prompt, values.gen, values.rounds, values.threads],
].map(Number);

/** One round's clients: all bodies at once; resolves with the seconds until the last stream ended. */
async function ask(port: number, bodies: readonly string[]): Promise<number> {
  const path = values.api === "chat" ? "/v1/chat/completions" : "/v1/completions";
  const started = performance.now();
  await Promise.all(bodies.map((body) => readStream(port, path, body)));
  return (performance.now() - started) / 1000;
}

const agent = new Agent({ keepAlive: true });

function readStream(port: number, path: string, body: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({ port, path, method: "POST", agent }, (response) => {
      let tail = "";
      response.on("data", (chunk: Buffer) => {
        tail = (tail + chunk.toString("latin1")).slice(-40);
      });
      response.on("end", () => {
        if (response.statusCode === 200 && tail.includes("[DONE]")) resolve();
        else reject(new Error(`status ${response.statusCode}: ${tail}`));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

async function runClient(port: number): Promise<void> {
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${await ask(port, JSON.parse(line))}\n`);
  }
}

const WORDS = ["river", "stone", "seven", "light", "north", "bread", "cloud", "iron"];

/** Bodies of one round: other words every time, so that nothing is reused. */
function bodiesOf(random: Random): object[] {
  return Array.from({ length: clients }, () => {
    const words = Array.from({ length: promptTokens }, () => WORDS[random.nextUint32() % WORDS.length]);
    const fields = { max_tokens: genTokens, temperature: 0, stream: true };
    const text = words.join(" ");
    return values.api === "chat"
      ? { ...fields, messages: [{ role: "user", content: text }] }
      : { ...fields, prompt: text };
  });
}

async function main(): Promise<void> {
  const path = resolveModelPath(values.model);
  const model = openModel(path);
  const engine = await SchedulerEngine.open({
    ...{ modelPath: path, threads, slots, headRows: slots, ctxTokens: 2 * promptTokens + genTokens + 64 },
    ...{ queueLimit: clients, chunkTokens: 512, checkpointBytes: 0 },
  });
  const served = { id: "bench", ...model, ctxTokens: engine.info.ctxTokens, source: engine };
  const metrics = new ServerMetrics();
  const state = new ServerState();
  const runner = new AnswerRunner({
    model: { ...served, concurrency: Number.POSITIVE_INFINITY },
    ...{ maxQueued: clients, metrics, log: SILENT_LOG, onFault: () => {} },
  });
  state.serve(runner);
  const app = createApp({ state, metrics, log: SILENT_LOG, version: "bench" }, ALL_ROUTES);
  const http = await listen(app, { host: "127.0.0.1", port: 0 });
  const args = [...process.argv.slice(1), "--client", String(http.port)];
  const client = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: client.stdout })[Symbol.asyncIterator]();

  const runDirect = async (prepared: readonly PreparedAnswer[]) => {
    const started = performance.now();
    const counts = await Promise.all(
      prepared.map(async ({ generate }) => {
        let tokens = 0;
        for await (const event of engine.generate(generate)) if (event.kind === "token") tokens++;
        return tokens;
      }),
    );
    return {
      seconds: (performance.now() - started) / 1000,
      tokens: counts.reduce((sum, count) => sum + count),
    };
  };
  const runHttp = async (bodies: readonly object[]) => {
    client.stdin.write(`${JSON.stringify(bodies.map((body) => JSON.stringify(body)))}\n`);
    return Number((await lines.next()).value);
  };
  const rows: { direct: number; http: number }[] = [];
  for (let round = -warmUpRounds; round < rounds; round++) {
    const bodies = bodiesOf(new Random(round + 100));
    const prepared = bodies.map((body) => {
      const job =
        values.api === "chat" ? chatJob(body, model.tokenizer) : completionJob(body, model.tokenizer);
      return runner.prepare(job.request);
    });
    // Every other round the other way round: what comes second finds warmer caches.
    const early = round % 2 === 0 ? undefined : await runHttp(bodies);
    const direct = await runDirect(prepared);
    const seconds = early ?? (await runHttp(bodies));
    if (round >= 0) rows.push({ direct: direct.tokens / direct.seconds, http: direct.tokens / seconds });
  }
  client.kill();
  void http.stop();
  http.destroy();
  await engine.close();
  report(rows);
}

function report(rows: readonly { direct: number; http: number }[]): void {
  const median = (of: (row: (typeof rows)[number]) => number) =>
    [...rows].sort((a, b) => of(a) - of(b)).map(of)[rows.length >> 1];
  const facts = {
    ...{ model: values.model ?? "nano", api: values.api, clients, slots, threads, promptTokens, genTokens },
    inProcessTps: median(({ direct }) => direct),
    httpTps: median(({ http }) => http),
    // Of the medians, not the median of the shares: a slow spell hits one of a round's two.
    share: median(({ http }) => http) / median(({ direct }) => direct),
    // The fastest rounds: what is left of a share on a machine that other programs use.
    bestShare: Math.max(...rows.map(({ http }) => http)) / Math.max(...rows.map(({ direct }) => direct)),
  };
  if (values.json) {
    console.log(JSON.stringify({ ...facts, rows }, null, 2));
    return;
  }
  const cells = rows.map(({ direct, http }, at) => [
    String(at + 1),
    ...[direct, http].map((tps) => tps.toFixed(1)),
    (http / direct).toFixed(3),
  ]);
  const tps = [facts.inProcessTps, facts.httpTps].map((value) => value.toFixed(1));
  cells.push(["median", ...tps, facts.share.toFixed(3)], ["best", "", "", facts.bestShare.toFixed(3)]);
  console.log(formatTable(["round", "in process t/s", "HTTP t/s", "share"], cells));
}

if (values.client !== undefined) await runClient(Number(values.client));
else await main();
