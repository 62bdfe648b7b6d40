// The routes of OpenAI's API.
import type { RouteTools } from "../app.ts";
import { ResponseStore } from "../response-store.ts";
import { chatJob } from "../wire/openai-chat.ts";
import { completionJob } from "../wire/openai-completions.ts";
import { openAiErrorBody } from "../wire/openai-errors.ts";
import { responsesJob } from "../wire/openai-responses.ts";

/** Adds `/v1/chat/completions`, `/v1/completions` and `/v1/responses`. */
export function openAiRoutes({ answerRoute }: RouteTools): void {
  const store = new ResponseStore();
  answerRoute("/v1/chat/completions", openAiErrorBody, chatJob);
  answerRoute("/v1/completions", openAiErrorBody, completionJob);
  answerRoute("/v1/responses", openAiErrorBody, (body) => responsesJob(body, store));
}
