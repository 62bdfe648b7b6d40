// What the HTTP server costs: the same requests at once through the engine itself and through HTTP streams, over one
// loaded model. Rounds take turns, so that a slow spell of the machine hits both. Clients are a process of their own, which
// reads bytes and parses nothing but the end. Speeds are counted from the first token of a round to its last one: the
// prompts' evaluation is the same work for both and would only hide the difference.
// Usage: node scripts/bench-server.ts [-m FILE] [--clients 1,8] [--slots 8] [--prompt 16] [--gen 96] [--rounds 7] [--warm-up 4]
//          [--threads N] [--api completions|chat] [--json]
// A round of a large file (four layers of V4-Flash) takes about 0.1 s a token, twice: --gen 40 --rounds 6 --warm-up 1.
import { spawn } from "node:child_process";
import { Agent, request as httpRequest } from "node:http";
import { availableParallelism } from "node:os";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { openModel, resolveModelPath } from "../src/api/open-model.ts";
import { median } from "../src/core/median.ts";
import { Random } from "../src/core/random.ts";
import { textTable } from "../src/core/text-table.ts";
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
    clients: { type: "string", default: "1,8" },
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
const [slots, promptWords, genTokens, rounds, threads] = [
  ...[values.slots, values.prompt, values.gen, values.rounds, values.threads],
].map(Number);
const clientCounts = values.clients.split(",").map(Number);

/** When the first token of one stream came, when its last, in milliseconds of its process, and how many. */
interface StreamTimes {
  firstMs: number;
  lastMs: number;
  tokens: number;
}

/** Tokens per second of streams that ran at once, from the first token of any to the last of any. */
function speedOf(streams: readonly StreamTimes[]): number {
  const firstMs = Math.min(...streams.map((stream) => stream.firstMs));
  const lastMs = Math.max(...streams.map((stream) => stream.lastMs));
  const tokens = streams.reduce((sum, stream) => sum + stream.tokens - 1, 0);
  return (1000 * tokens) / (lastMs - firstMs);
}

/** One round's clients: all bodies at once; resolves with the tokens per second. */
async function ask(port: number, bodies: readonly string[]): Promise<number> {
  const path = values.api === "chat" ? "/v1/chat/completions" : "/v1/completions";
  return speedOf(await Promise.all(bodies.map((body) => readStream(port, path, body))));
}

const agent = new Agent({ keepAlive: true });
/** Enough of a stream's end to hold the counts. */
const USAGE_BYTES = 1500;

function readStream(port: number, path: string, body: string): Promise<StreamTimes> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({ port, path, method: "POST", agent }, (response) => {
      let tail = "";
      let firstMs = 0;
      response.on("data", (chunk: Buffer) => {
        const text = chunk.toString("latin1");
        if (firstMs === 0 && text.includes("data: ")) firstMs = performance.now();
        tail = (tail + text).slice(-USAGE_BYTES);
      });
      response.on("end", () => {
        const tokens = /"completion_tokens":(\d+)/.exec(tail)?.[1];
        if (tokens !== undefined && tail.includes("[DONE]"))
          resolve({ firstMs, lastMs: performance.now(), tokens: Number(tokens) });
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

/** Room in a context for marks around a prompt, and for the longest word below in any vocabulary, in tokens. */
const [PROMPT_TOKENS_MOST, WORD_TOKENS_MOST] = [64, 6];
const WORDS = ["river", "stone", "seven", "light", "north", "bread", "cloud", "iron"];

/** Bodies of one round: other words every time, so that nothing is reused. */
function bodiesOf(random: Random, clients: number): object[] {
  return Array.from({ length: clients }, () => {
    const words = Array.from({ length: promptWords }, () => WORDS[random.nextUint32() % WORDS.length]);
    const fields = {
      ...{ max_tokens: genTokens, temperature: 0, stream: true, stream_options: { include_usage: true } },
    };
    const text = words.join(" ");
    return values.api === "chat"
      ? { ...fields, messages: [{ role: "user", content: text }] }
      : { ...fields, prompt: text };
  });
}

/** What is measured: one engine, reached in two ways. */
interface Bench {
  direct(prepared: readonly PreparedAnswer[]): Promise<number>;
  http(bodies: readonly object[]): Promise<number>;
  prepare(body: object): PreparedAnswer;
  close(): Promise<void>;
}

async function openBench(): Promise<Bench> {
  const path = resolveModelPath(values.model);
  const model = openModel(path);
  const most = Math.max(...clientCounts);
  const ctxTokens = PROMPT_TOKENS_MOST + WORD_TOKENS_MOST * promptWords + genTokens;
  const engine = await SchedulerEngine.open({
    ...{ modelPath: path, threads, slots, headRows: slots, ctxTokens },
    ...{ queueLimit: most, chunkTokens: 512, checkpointBytes: 0 },
  });
  const served = { id: "bench", ...model, ctxTokens: engine.info.ctxTokens, source: engine };
  const metrics = new ServerMetrics();
  const state = new ServerState();
  const runner = new AnswerRunner({
    model: { ...served, concurrency: Number.POSITIVE_INFINITY },
    ...{ maxQueued: most, metrics, log: SILENT_LOG, onFault: () => {} },
  });
  state.serve(runner);
  const app = createApp({ state, metrics, log: SILENT_LOG, version: "bench" }, ALL_ROUTES);
  const http = await listen(app, { host: "127.0.0.1", port: 0 });
  const args = [...process.argv.slice(1), "--client", String(http.port)];
  const client = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: client.stdout })[Symbol.asyncIterator]();
  const readDirect = async ({ generate }: PreparedAnswer): Promise<StreamTimes> => {
    let [firstMs, tokens] = [0, 0];
    for await (const event of engine.generate(generate)) {
      if (event.kind === "token" && tokens++ === 0) firstMs = performance.now();
    }
    return { firstMs, lastMs: performance.now(), tokens };
  };
  return {
    direct: async (prepared) => speedOf(await Promise.all(prepared.map(readDirect))),
    async http(bodies) {
      client.stdin.write(`${JSON.stringify(bodies.map((body) => JSON.stringify(body)))}\n`);
      return Number((await lines.next()).value);
    },
    prepare: (body) =>
      runner.prepare(
        (values.api === "chat" ? chatJob(body, model.tokenizer) : completionJob(body, model.tokenizer))
          .request,
      ),
    async close() {
      client.kill();
      void http.stop();
      http.destroy();
      await engine.close();
    },
  };
}

/** Speeds of one round, tokens per second of all streams together. */
interface Round {
  direct: number;
  http: number;
}

async function measure(bench: Bench, clients: number): Promise<Round[]> {
  const rows: Round[] = [];
  for (let at = -warmUpRounds; at < rounds; at++) {
    const bodies = bodiesOf(new Random(100 * clients + at + 50), clients);
    const prepared = bodies.map((body) => bench.prepare(body));
    // Every other round the other way round: what comes second finds warmer caches.
    const early = at % 2 === 0 ? undefined : await bench.http(bodies);
    const direct = await bench.direct(prepared);
    const http = early ?? (await bench.http(bodies));
    if (at >= 0) rows.push({ direct, http });
    if (!values.json)
      console.error(`${clients} streams, round ${at + 1}: ${direct.toFixed(1)} and ${http.toFixed(1)} t/s`);
  }
  return rows;
}

async function main(): Promise<void> {
  const bench = await openBench();
  const facts = { model: values.model ?? "nano", api: values.api, slots, threads, promptWords, genTokens };
  const results = [];
  for (const clients of clientCounts) {
    results.push({ ...facts, clients, ...summary(await measure(bench, clients)) });
  }
  await bench.close();
  if (values.json) console.log(JSON.stringify(results, null, 2));
  else for (const { clients, rows, ...medians } of results) printTable(clients, rows, medians);
}

function summary(rows: readonly Round[]) {
  const [direct, http] = [rows.map((row) => row.direct), rows.map((row) => row.http)];
  const [directBest, httpBest] = [Math.max(...direct), Math.max(...http)];
  return {
    ...{ inProcessTps: median(direct), httpTps: median(http) },
    ...{ inProcessBestTps: directBest, httpBestTps: httpBest },
    // Of the medians, not the median of the shares: a slow spell hits one of a round's two.
    share: median(http) / median(direct),
    // The fastest rounds: what is left of a share on a machine that other programs use.
    bestShare: httpBest / directBest,
    rows,
  };
}

function printTable(
  clients: number,
  rows: readonly Round[],
  medians: Omit<ReturnType<typeof summary>, "rows">,
): void {
  const cells = rows.map(({ direct, http }, at) => cellsOf(String(at + 1), direct, http));
  cells.push(cellsOf("median", medians.inProcessTps, medians.httpTps));
  cells.push(cellsOf("best", medians.inProcessBestTps, medians.httpBestTps));
  const header = [`${clients} streams`, "in process t/s", "HTTP t/s", "share"];
  console.log(textTable("lrrr", [header, ...cells], { isRuled: true }).join("\n"));
}

function cellsOf(name: string, direct: number, http: number): string[] {
  return [name, direct.toFixed(1), http.toFixed(1), (http / direct).toFixed(3)];
}

if (values.client !== undefined) await runClient(Number(values.client));
else await main();
