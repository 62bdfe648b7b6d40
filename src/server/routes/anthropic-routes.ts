// The routes of Anthropic's API.
import type { RouteTools } from "../app.ts";
import { anthropicErrorBody, countTokensRequest, messagesJob } from "../wire/anthropic-messages.ts";

/** Adds `/v1/messages` and `/v1/messages/count_tokens`. */
export function anthropicRoutes({ app, parts, answerRoute, jsonRoute, errorsBelow }: RouteTools): void {
  errorsBelow("/v1/messages", anthropicErrorBody);
  answerRoute("/v1/messages", anthropicErrorBody, messagesJob);
  // Counting needs no place in the line: it only renders.
  jsonRoute("/v1/messages/count_tokens", anthropicErrorBody, (body) => {
    const request = countTokensRequest(body);
    return { input_tokens: parts.state.require().promptTokens(request).length };
  });
  // One client looks here whether there is a server before its first request.
  app.get("/api/hello", (c) => c.text("hello"));
}
