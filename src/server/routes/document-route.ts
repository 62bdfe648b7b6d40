// GET /openapi.json: the requests that are accepted, made from the very schemas that check them.
import { OpenAPIHono, type RouteConfig, z } from "@hono/zod-openapi";
import type { RouteTools } from "../app.ts";
import { messagesRequestSchema } from "../wire/anthropic-request.ts";
import { ollamaChatSchema } from "../wire/ollama-chat.ts";
import { chatRequestSchema } from "../wire/openai-chat.ts";
import { completionRequestSchema } from "../wire/openai-completions.ts";
import { responsesRequestSchema } from "../wire/openai-responses-request.ts";
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
];
const GETS: readonly [path: string, summary: string][] = [
  ["/v1/models", "The loaded model"],
  ["/v1/models/{id}", "The loaded model"],
  ["/health", "200 when requests are served, else 503 with loading, failed or stopping"],
  ["/metrics", "Prometheus metrics"],
  ["/api/tags", "The loaded model, as Ollama lists it"],
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
  const responses: RouteConfig["responses"] = {
    200: { description: "The answer; with `stream` as server-sent events or JSON lines" },
    400: { description: "The request is wrong; the message names field and reason" },
    401: { description: "The API key is missing or wrong" },
    429: { description: "Too many requests wait; see Retry-After" },
    503: { description: "The model is loading, has failed, or the server is stopping" },
  };
  for (const [path, summary, schema] of POSTS) {
    const body = { required: true, content: { "application/json": { schema } } };
    registry.registerPath({ method: "post", path, summary, request: { body }, responses });
  }
  for (const [path, summary] of GETS) {
    const request = path.includes("{id}") ? { params: z.object({ id: z.string() }) } : undefined;
    registry.registerPath({ method: "get", path, summary, request, responses });
  }
  return getOpenAPI31Document({ openapi: "3.1.0", info: { title: "ds4-server", version } });
}
