// The routes of OpenAI's API.
import { openAiErrorBody } from "../wire/openai-errors.ts";
import { chatJob } from "../wire/openai-chat.ts";
import type { RouteTools } from "../app.ts";

/** Adds `/v1/chat/completions`. */
export function openAiRoutes({ answerRoute }: RouteTools): void {
  answerRoute("/v1/chat/completions", openAiErrorBody, chatJob);
}
