// GET /openapi.json: the requests that are accepted, made from the very schemas that check them, and examples of answers.
import { OpenAPIHono, type RouteConfig, z } from "@hono/zod-openapi";
import type { RouteTools } from "../app.ts";
import { messagesRequestSchema } from "../wire/anthropic-request.ts";
import { ollamaChatSchema } from "../wire/ollama-chat.ts";
import { chatRequestSchema } from "../wire/openai-chat.ts";
import { completionRequestSchema } from "../wire/openai-completions.ts";
import { responsesRequestSchema } from "../wire/openai-responses-request.ts";
import { EXAMPLES, type RouteExample, schemaOf } from "./document-examples.ts";
import { ollamaShowSchema } from "./ollama-routes.ts";
import { detokenizeSchema, tokenizeSchema } from "./service-routes.ts";

const POSTS: readonly [path: string, summary: string, schema: z.ZodType][] = [
  ["/v1/chat/completions", "OpenAI chat completion", chatRequestSchema],
  ["/v1/completions", "OpenAI completion of plain text", completionRequestSchema],
  ["/v1/responses", "OpenAI response", responsesRequestSchema],
  ["/v1/messages", "Anthropic message", messagesRequestSchema],
  ["/v1/messages/count_tokens", "Tokens of an Anthropic message's prompt", messagesRequestSchema],
  ["/tokenize", "Text to token ids", tokenizeSchema],
  ["/detokenize", "Token ids to text", detokenizeSchema],
  ["/api/chat", "Ollama chat", ollamaChatSchema],
  ["/api/show", "Abilities and context of the loaded model, as Ollama shows them", ollamaShowSchema],
];
const GETS: readonly [path: string, summary: string][] = [
  ["/v1/models", "The loaded model"],
  ["/v1/models/{id}", "The loaded model"],
  ["/health", "200 when requests are served, else 503 with loading, failed or stopping"],
  ["/metrics", "Prometheus metrics"],
  ["/api/tags", "The loaded model, as Ollama lists it"],
  ["/api/ps", "The loaded model, as Ollama lists what runs"],
  ["/api/version", "Version"],
];

/** Adds `/openapi.json`. */
export function documentRoute({ app, parts }: RouteTools): void {
  let document: object | undefined;
  app.get("/openapi.json", (c) => {
    document ??= makeDocument(parts.version);
    return c.json(document);
  });
}

function makeDocument(version: string): object {
  const { openAPIRegistry: registry, getOpenAPI31Document } = new OpenAPIHono();
  for (const [path, summary, schema] of POSTS) {
    const { request: example } = EXAMPLES[path];
    const body = { required: true, content: { "application/json": { schema, example } } };
    const [tags, responses] = [[tagOf(path)], responsesOf(EXAMPLES[path])];
    registry.registerPath({ method: "post", path, summary, tags, request: { body }, responses });
  }
  for (const [path, summary] of GETS) {
    const request = path.includes("{id}") ? { params: z.object({ id: z.string() }) } : undefined;
    const [tags, responses] = [[tagOf(path)], responsesOf(EXAMPLES[path])];
    registry.registerPath({ method: "get", path, summary, tags, request, responses });
  }
  return getOpenAPI31Document({ openapi: "3.1.0", info: { title: "ds4-server", version } });
}

/** Whose API a path belongs to. */
function tagOf(path: string): string {
  if (path.startsWith("/v1/messages")) return "Anthropic";
  if (path.startsWith("/v1/")) return "OpenAI";
  return path.startsWith("/api/") ? "Ollama" : "Server";
}

function responsesOf({ request, response }: RouteExample): RouteConfig["responses"] {
  const content: Record<string, { schema: object; example: object | string }> =
    typeof response === "string"
      ? { "text/plain": { schema: { type: "string" }, example: response } }
      : { "application/json": { schema: schemaOf(response), example: response } };
  const isAnswer = request !== undefined && "model" in request && Object.keys(request).length > 1;
  const streams = isAnswer ? "; with `stream` as server-sent events or JSON lines" : "";
  return {
    200: { description: `The answer${streams}`, content },
    ...(request === undefined
      ? {}
      : { 400: { description: "The request is wrong; the message names field and reason" } }),
    401: { description: "The API key is missing or wrong" },
    ...(isAnswer ? { 429: { description: "Too many requests wait; see Retry-After" } } : {}),
    503: { description: "The model is loading, has failed, or the server is stopping" },
  };
}
