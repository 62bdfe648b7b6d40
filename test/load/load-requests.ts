// What the clients of the load test ask for, over three APIs, and what they send that is no request at all.
import type { Random } from "../../src/core/random.ts";

/** A request and how to read the answer's text from its stream. */
export interface LoadRequest {
  /** Names it in failures, and its lone answer. */
  name: string;
  path: string;
  body: object;
  /** Text, reasoning and arguments that a stream's event carries; what is not text is left out. */
  textOf(event: Json): string;
}

/** A parsed body: tests look at what they expect. */
// biome-ignore lint/suspicious/noExplicitAny: every API has another shape
export type Json = any;

/** Bytes that a server must refuse, and the statuses that say so. */
export interface MalformedRequest {
  name: string;
  bytes: string;
  statuses: readonly number[];
}

const PLACES = ["France", "Italy", "Japan", "Peru", "Norway", "India"];
const WEATHER = {
  name: "get_weather",
  description: "Get the weather in a city.",
  schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

/** Requests of three APIs: short, long, with common beginnings and with tools. All are greedy. */
export function loadRequests(random: Random): LoadRequest[] {
  const stem = Array.from({ length: 40 }, () => pick(random, PLACES)).join(" and ");
  return PLACES.flatMap((place, index) => {
    const question = `What is the capital of ${place}?`;
    const tail = Array.from({ length: random.nextUint32() % 30 }, () => pick(random, PLACES)).join(", ");
    const maxTokens = 6 + (random.nextUint32() % 40);
    return [
      chat(`chat ${place}`, [{ role: "user", content: question }], maxTokens),
      chat(
        `turns ${place}`,
        [
          { role: "system", content: stem },
          { role: "user", content: question },
          { role: "assistant", content: `It is a city.` },
          { role: "user", content: `And what is near it? ${tail}` },
        ],
        maxTokens,
      ),
      messages(`messages ${place}`, `${stem}. ${question}`, maxTokens, index % 2 === 0),
      completion(`completion ${place}`, `${tail} ${question}`, maxTokens),
    ];
  });
}

function chat(name: string, turns: object[], maxTokens: number): LoadRequest {
  return {
    ...{ name, path: "/v1/chat/completions" },
    body: { messages: turns, max_tokens: maxTokens, temperature: 0, stream: true },
    textOf: ({ choices }) => (choices[0]?.delta.reasoning_content ?? "") + (choices[0]?.delta.content ?? ""),
  };
}

function messages(name: string, content: string, maxTokens: number, usesTools: boolean): LoadRequest {
  const { schema, ...tool } = WEATHER;
  return {
    ...{ name, path: "/v1/messages" },
    body: {
      ...{ messages: [{ role: "user", content }], max_tokens: maxTokens, temperature: 0, stream: true },
      ...(usesTools ? { tools: [{ ...tool, input_schema: schema }] } : {}),
    },
    textOf: ({ delta }) => delta?.text ?? delta?.thinking ?? delta?.partial_json ?? "",
  };
}

function completion(name: string, prompt: string, maxTokens: number): LoadRequest {
  return {
    ...{ name, path: "/v1/completions" },
    body: { prompt, max_tokens: maxTokens, temperature: 0, stream: true },
    textOf: ({ choices }) => choices[0]?.text ?? "",
  };
}

/** Requests that are none: broken framing, broken JSON, wrong fields, too much. */
export function malformedRequests(): MalformedRequest[] {
  const post = (body: string, path = "/v1/chat/completions", length = Buffer.byteLength(body)) =>
    `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ${length}\r\n\r\n${body}`;
  const user = (content: unknown, rest: object = {}) =>
    JSON.stringify({ messages: [{ role: "user", content }], ...rest });
  return [
    { name: "cut JSON", bytes: post('{"messages": ['), statuses: [400] },
    { name: "no messages", bytes: post('{"messages": []}'), statuses: [400] },
    { name: "content of a wrong type", bytes: post(user(5)), statuses: [400] },
    { name: "negative tokens", bytes: post(user("x", { max_tokens: -1 })), statuses: [400] },
    { name: "a long prompt", bytes: post(user("word ".repeat(9000))), statuses: [400] },
    { name: "deep JSON", bytes: post(`${"[".repeat(5000)}${"]".repeat(5000)}`), statuses: [400] },
    { name: "no such endpoint", bytes: post("{}", "/v1/nothing"), statuses: [404] },
    {
      name: "two lengths",
      bytes: post("{}").replace("\r\n\r\n", "\r\nContent-Length: 9\r\n\r\n"),
      statuses: [400],
    },
    { name: "noise", bytes: `${"\u0001\u007f".repeat(40)}\r\n\r\n`, statuses: [400] },
    {
      name: "large headers",
      bytes: post("{}").replace("Host:", `X: ${"a".repeat(40_000)}\r\nHost:`),
      statuses: [431],
    },
  ];
}

/** One of `items`. */
export function pick<T>(random: Random, items: readonly T[]): T {
  return items[random.nextUint32() % items.length];
}
