// A model as the APIs list it: fields of OpenAI's, Anthropic's and other local servers' model objects together.
import type { ServedModel } from "../answer-source.ts";
import { ApiError } from "../api-error.ts";

/** The loaded model. Counts are in tokens. */
export interface ModelObject {
  id: string;
  object: "model";
  type: "model";
  /** When it was loaded, seconds since 1970. */
  created: number;
  /** The same as ISO text. */
  created_at: string;
  display_name: string;
  owned_by: string;
  context_length: number;
  max_model_len: number;
  max_input_tokens: number;
  max_tokens: number;
  input_modalities: string[];
  output_modalities: string[];
  supported_parameters: string[];
}

/** See `ModelObject`. */
export function modelObject(model: ServedModel, createdSeconds: number): ModelObject {
  return {
    id: model.id,
    object: "model",
    type: "model",
    created: createdSeconds,
    created_at: new Date(createdSeconds * 1000).toISOString(),
    display_name: model.id,
    owned_by: "ds4-ts",
    context_length: model.ctxTokens,
    max_model_len: model.ctxTokens,
    max_input_tokens: model.ctxTokens - 1,
    max_tokens: model.defaultMaxTokens ?? model.ctxTokens - 1,
    input_modalities: ["text"],
    output_modalities: ["text"],
    supported_parameters: [
      "tools",
      "reasoning",
      "temperature",
      "top_p",
      "top_k",
      "min_p",
      "seed",
      "stop",
      "logprobs",
    ],
  };
}

/** The error for a name that is not the loaded model's. */
export function modelNotFound(id: string, loadedId: string): ApiError {
  const message = `no model ${JSON.stringify(id.slice(0, 100))} is loaded; the loaded model is ${loadedId}`;
  return new ApiError("not-found", message, { param: "model", code: "model_not_found" });
}
