// Routes about the server itself: models, tokens, health, metrics.
import type { Context } from "hono";
import { z } from "zod";
import type { Gauge } from "../answer-source.ts";
import { ApiError } from "../api-error.ts";
import type { AppParts, RouteTools } from "../app.ts";
import { MAX_TOKEN_IDS } from "../limits.ts";
import { modelNotFound, modelObject } from "../wire/model-object.ts";
import { openAiErrorBody } from "../wire/openai-errors.ts";
import { parseBody } from "../wire/parse-body.ts";

/** The text under any of the names that other servers use. Marks stay text unless `parse_special` is set. */
export const tokenizeSchema = z.looseObject({
  content: z.string().nullish(),
  prompt: z.string().nullish(),
  text: z.string().nullish(),
  add_special: z.boolean().nullish(),
  parse_special: z.boolean().nullish(),
});
/** The body of `/detokenize`. */
export const detokenizeSchema = z.looseObject({ tokens: z.array(z.int().min(0)).max(MAX_TOKEN_IDS) });

/** How long `/metrics` waits for numbers of the source, which may be busy; then it shows the last known. */
const GAUGES_WAIT_MS = 100;

/** Adds `/v1/models`, `/tokenize`, `/detokenize`, `/health` and `/metrics`. */
export function serviceRoutes(tools: RouteTools): void {
  modelRoutes(tools);
  tokenRoutes(tools);
  const { app, parts } = tools;
  app.get("/health", (c) => health(c, parts));
  app.get("/health/ready", (c) => health(c, parts));
  app.get("/health/live", (c) =>
    c.json({ status: parts.state.phase === "failed" ? "failed" : "ok" }, liveStatus(parts)),
  );
  let known: Gauge[] = [];
  app.get("/metrics", async (c) => {
    const { state, metrics } = parts;
    const reading = state.runner?.model.readGauges?.().then(
      (gauges) => {
        known = gauges;
      },
      () => {},
    );
    await Promise.race([reading, new Promise((resolve) => setTimeout(resolve, GAUGES_WAIT_MS))]);
    const admission = state.runner?.admission;
    const text = metrics.render({
      running: admission?.running ?? 0,
      queued: admission?.queued ?? 0,
      isReady: state.phase === "ready",
      source: known,
    });
    return c.body(text, 200, { "content-type": "text/plain; version=0.0.4; charset=utf-8" });
  });
}

// A process that has failed cannot mend itself: both say so, so that a supervisor restarts it.
function liveStatus(parts: AppParts): 200 | 503 {
  return parts.state.phase === "failed" ? 503 : 200;
}

function health(c: Context, parts: AppParts): Response {
  const { phase } = parts.state;
  // Health is answered without a key, so where keys are used it does not say why.
  const reason = (parts.apiKeys ?? []).length === 0 ? parts.state.reason : undefined;
  return c.json({ status: phase === "ready" ? "ok" : phase, reason }, phase === "ready" ? 200 : 503);
}

function modelRoutes({ app, parts }: RouteTools): void {
  const createdSeconds = Math.floor(Date.now() / 1000);
  app.get("/v1/models", (c) => {
    const { model } = parts.state.require();
    const page = { has_more: false, first_id: model.id, last_id: model.id };
    return c.json({ object: "list", data: [modelObject(model, createdSeconds)], ...page });
  });
  app.get("/v1/models/:id{.+}", (c) => {
    const { model } = parts.state.require();
    const id = c.req.param("id");
    if (id === model.id) return c.json(modelObject(model, createdSeconds));
    throw modelNotFound(id, model.id);
  });
}

function tokenRoutes({ parts, jsonRoute }: RouteTools): void {
  jsonRoute("/tokenize", openAiErrorBody, (body) => {
    const { tokenizer, ctxTokens } = parts.state.require().model;
    const parsed = parseBody(tokenizeSchema, body);
    const text = parsed.content ?? parsed.prompt ?? parsed.text;
    if (text === null || text === undefined) {
      throw new ApiError("invalid-request", "content: expected string, got undefined", { param: "content" });
    }
    const ids = tokenizer.encode(text, { allowSpecial: parsed.parse_special === true });
    const tokens = parsed.add_special ? [tokenizer.bosId, ...ids] : [...ids];
    return { tokens, count: tokens.length, max_model_len: ctxTokens };
  });
  jsonRoute("/detokenize", openAiErrorBody, (body) => {
    const { tokenizer } = parts.state.require().model;
    const { tokens } = parseBody(detokenizeSchema, body);
    const wrong = tokens.findIndex((id) => id >= tokenizer.vocabSize);
    if (wrong >= 0) {
      const param = `tokens[${wrong}]`;
      const message = `${param}: expected a token id below ${tokenizer.vocabSize}, got ${tokens[wrong]}`;
      throw new ApiError("invalid-request", message, { param });
    }
    const text = tokenizer.decode(tokens);
    return { content: text, prompt: text };
  });
}
