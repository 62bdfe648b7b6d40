// The routes of OpenAI's API: chat and plain completions.
import type { RouteTools } from "../app.ts";
import { chatJob } from "../wire/openai-chat.ts";
import { completionJob } from "../wire/openai-completions.ts";
import { openAiErrorBody } from "../wire/openai-errors.ts";

/** Adds `/v1/chat/completions` and `/v1/completions`. */
export function openAiRoutes({ answerRoute }: RouteTools): void {
  answerRoute("/v1/chat/completions", openAiErrorBody, chatJob);
  answerRoute("/v1/completions", openAiErrorBody, completionJob);
}
