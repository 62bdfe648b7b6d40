// The routes of Ollama's API that front ends connect with.
import { z } from "zod";
import type { ServedModel } from "../answer-source.ts";
import type { RouteTools } from "../app.ts";
import { modelNotFound } from "../wire/model-object.ts";
import { ollamaChatJob, ollamaErrorBody } from "../wire/ollama-chat.ts";
import { parseBody } from "../wire/parse-body.ts";

/** The body of `/api/show`; older clients say `name`. */
export const ollamaShowSchema = z.looseObject({ model: z.string().nullish(), name: z.string().nullish() });

const DETAILS = {
  parent_model: "",
  format: "gguf",
  family: "deepseek4",
  families: ["deepseek4"],
  parameter_size: "",
  quantization_level: "",
};
/** What Ollama says of a model that it never unloads. */
const NEVER = "2318-01-01T00:00:00Z";

/** Adds `/api/chat`, `/api/tags`, `/api/ps`, `/api/show` and `/api/version`. */
export function ollamaRoutes({ app, parts, answerRoute, jsonRoute, errorsBelow }: RouteTools): void {
  errorsBelow("/api/", ollamaErrorBody);
  answerRoute("/api/chat", ollamaErrorBody, ollamaChatJob);
  const startedAt = new Date().toISOString();
  const entryOf = (model: ServedModel) => ({
    name: model.id,
    model: model.id,
    size: model.fileBytes ?? 0,
    digest: "",
    details: DETAILS,
  });
  app.get("/api/tags", (c) => {
    const { model } = parts.state.require();
    return c.json({ models: [{ ...entryOf(model), modified_at: startedAt }] });
  });
  app.get("/api/ps", (c) => {
    const { model } = parts.state.require();
    const running = { expires_at: NEVER, size_vram: 0, context_length: model.ctxTokens };
    return c.json({ models: [{ ...entryOf(model), ...running }] });
  });
  jsonRoute("/api/show", ollamaErrorBody, (body) => {
    const { model } = parts.state.require();
    const parsed = parseBody(ollamaShowSchema, body);
    const name = parsed.model ?? parsed.name ?? model.id;
    if (name.replace(/:latest$/, "") !== model.id) throw modelNotFound(name, model.id);
    return {
      modelfile: "",
      parameters: "",
      template: "",
      details: DETAILS,
      model_info: {
        "general.architecture": "deepseek4",
        "general.basename": model.id,
        "deepseek4.context_length": model.ctxTokens,
      },
      capabilities: ["completion", "tools", "thinking"],
      modified_at: startedAt,
    };
  });
  app.get("/api/version", (c) => c.json({ version: parts.version }));
}
