// The routes of Ollama's API that front ends connect with.
import type { RouteTools } from "../app.ts";
import { ollamaChatJob, ollamaErrorBody } from "../wire/ollama-chat.ts";

/** Adds `/api/chat`, `/api/tags` and `/api/version`. */
export function ollamaRoutes({ app, parts, answerRoute }: RouteTools): void {
  answerRoute("/api/chat", ollamaErrorBody, ollamaChatJob);
  const startedAt = new Date().toISOString();
  app.get("/api/tags", (c) => {
    const { model } = parts.state.require();
    const details = {
      format: "gguf",
      family: "deepseek4",
      families: ["deepseek4"],
      parameter_size: "",
      quantization_level: "",
    };
    const entry = {
      name: model.id,
      model: model.id,
      modified_at: startedAt,
      size: model.fileBytes ?? 0,
      digest: "",
    };
    return c.json({ models: [{ ...entry, details }] });
  });
  app.get("/api/version", (c) => c.json({ version: parts.version }));
}
