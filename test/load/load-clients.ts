// Clients of the load test: they read streams, leave in the middle, send rubbish, read slowly. Each keeps what it got.
import { request as httpRequest, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Random } from "../../src/core/random.ts";
import { readEvents } from "../../src/net/event-stream.ts";
import { type Json, type LoadRequest, type MalformedRequest, pick } from "./load-requests.ts";

/** What all clients saw together. */
export interface LoadReport {
  /** Streams read to their end, and the events in them. */
  finished: number;
  events: number;
  /** Streams left before their end, and before their first byte. */
  left: number;
  leftEarly: number;
  malformed: number;
  /** Refusals with 429, after which a client waits. */
  busy: number;
  /** What must not be: answers that differ from the lone run, wrong statuses, broken streams. */
  failures: string[];
}

/** What the clients work with. */
export interface LoadOptions {
  port: number;
  clients: number;
  seed: number;
  requests: readonly LoadRequest[];
  malformed: readonly MalformedRequest[];
  /** Lone answers by the request's name. */
  expected: ReadonlyMap<string, string>;
  /** Clients begin nothing new after this time of `performance.now()`. */
  untilMs: number;
}

/** What one stream gave. */
export interface StreamedAnswer {
  status: number;
  text: string;
  events: number;
  /** Ids that its events carried: one, unless answers crossed. */
  ids: ReadonlySet<string>;
  /** The client left before the end. */
  hasLeft: boolean;
}

/** How a client reads. */
export interface Manner {
  /** Events after which the client leaves. */
  leavesAfter?: number;
  /** Pause after every fourth event. */
  pauseMs?: number;
}

const BUSY_PAUSE_MS = 100;
/** More failures say nothing new. */
const MAX_FAILURES = 20;

/** Runs all clients until the time is over and their last requests have ended. */
export async function runClients(options: LoadOptions): Promise<LoadReport> {
  const report: LoadReport = {
    ...{ finished: 0, events: 0, left: 0, leftEarly: 0, malformed: 0, busy: 0, failures: [] },
  };
  const seeds = new Random(options.seed);
  const randoms = Array.from({ length: options.clients }, () => new Random(seeds.nextUint32()));
  await Promise.all(randoms.map((random) => runClient(options, random, report)));
  return report;
}

async function runClient(options: LoadOptions, random: Random, report: LoadReport): Promise<void> {
  const { port, untilMs, requests, malformed } = options;
  while (performance.now() < untilMs && report.failures.length < MAX_FAILURES) {
    const kind = random.nextUint32() % 100;
    const request = pick(random, requests);
    const number = random.nextUint32();
    if (kind < 8) await sendMalformed(port, pick(random, malformed), report);
    else if (kind < 16) await leaveEarly(port, request, number % 60, report);
    else if (kind < 32) await ask(options, request, { leavesAfter: number % 12 }, report);
    else if (kind < 38) await ask(options, request, { pauseMs: 20 + (number % 200) }, report);
    else await ask(options, request, {}, report);
  }
}

async function ask(options: LoadOptions, request: LoadRequest, manner: Manner, report: LoadReport) {
  let answer: StreamedAnswer;
  try {
    answer = await readAnswer(options.port, request, manner);
  } catch (error) {
    report.failures.push(`${request.name}: ${(error as Error).message}`);
    return;
  }
  const { status, text, ids, events } = answer;
  if (status === 429) {
    report.busy++;
    await sleep(BUSY_PAUSE_MS);
    return;
  }
  const want = options.expected.get(request.name)!;
  const isRight = answer.hasLeft ? want.startsWith(text) : want === text;
  if (answer.hasLeft) report.left++;
  else report.finished++;
  report.events += events;
  if (status !== 200 || ids.size > 1 || !isRight) {
    const facts = JSON.stringify({ status, text, want, ids: [...ids] });
    report.failures.push(`${request.name}, ${answer.hasLeft ? "left" : "whole"}: ${facts}`);
  }
}

/** Sends one request and reads its stream. Throws when the stream breaks off or an event is no JSON. */
export async function readAnswer(
  port: number,
  { path, body, textOf }: LoadRequest,
  { leavesAfter, pauseMs }: Manner = {},
): Promise<StreamedAnswer> {
  const headers = { "content-type": "application/json" };
  const request = httpRequest({ port, path, method: "POST", headers, agent: false });
  const answer: StreamedAnswer = { status: 0, text: "", events: 0, ids: new Set(), hasLeft: false };
  const ids = answer.ids as Set<string>;
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      request.once("response", resolve);
      request.once("error", reject);
      request.end(JSON.stringify(body));
    });
    answer.status = response.statusCode!;
    if (answer.status !== 200) return answer;
    for await (const data of readEvents(response)) {
      if (data === "[DONE]") continue;
      if (answer.events++ === leavesAfter) {
        answer.hasLeft = true;
        break;
      }
      const event: Json = JSON.parse(data);
      if (event.error !== undefined) throw new Error(data);
      answer.text += textOf(event);
      const id = event.id ?? event.message?.id;
      if (id !== undefined) ids.add(id);
      if (pauseMs !== undefined && answer.events % 4 === 0) await sleep(pauseMs);
    }
    return answer;
  } finally {
    request.on("error", () => {}); // it is destroyed while it may still read
    request.destroy();
  }
}

/** Sends a request, or a part of it, and leaves before the answer begins. */
async function leaveEarly(port: number, { path, body }: LoadRequest, afterMs: number, report: LoadReport) {
  const text = JSON.stringify(body);
  const head = `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n`;
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write(head + (afterMs % 3 === 0 ? text.slice(0, -5) : text));
  await sleep(afterMs);
  if (afterMs % 2 === 0) socket.resetAndDestroy();
  else socket.destroy();
  report.leftEarly++;
}

async function sendMalformed(port: number, request: MalformedRequest, report: LoadReport): Promise<void> {
  const answer = await new Promise<string>((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(request.bytes));
    let received = "";
    socket.on("data", (chunk) => {
      received += chunk;
    });
    socket.on("error", () => {});
    socket.on("close", () => resolve(received));
  });
  report.malformed++;
  const status = Number(/^HTTP\/1\.1 (\d+) /.exec(answer)?.[1]);
  if (!request.statuses.includes(status)) {
    report.failures.push(`${request.name}: ${answer.slice(0, 200) || "nothing"}`);
  }
}
