// The public surface of the package: re-exports only.

export type {
  Backend,
  BackendStats,
  ForwardOptions,
  ForwardResult,
  KvState,
  TokenRange,
} from "./backend/backend.ts";
export {
  type ConvertOptions,
  type ConvertResult,
  convertCheckpoint,
  type RecipeOptions,
} from "./convert/convert.ts";
export {
  parseTypeOverride,
  type QuantizeOptions,
  type QuantizeResult,
  quantizeGguf,
  type TypeOverride,
} from "./convert/quantize.ts";
export { RECIPES, type Recipe } from "./convert/recipe.ts";
export {
  CancelledError,
  Ds4Error,
  type ErrorCode,
  GgufError,
  MemoryError,
  UnsupportedModelError,
  UsageError,
} from "./core/errors.ts";
export type { Progress, ProgressListener } from "./core/progress.ts";
export type { GgufFile, MetadataValue, TensorInfo } from "./gguf/gguf-file.ts";
export { openGguf } from "./gguf/open-gguf.ts";
export type { ModelSpec } from "./model/model-spec.ts";
export { type CallOptions, Engine, type EngineOptions } from "./session/engine.ts";
export type { BackendChoice, EngineInfo, EngineStats, PrefillResult } from "./session/engine-protocol.ts";
export type { EvaluateRequest, EvaluateResult } from "./session/evaluate.ts";
export type {
  Channel,
  FinishEvent,
  FinishReason,
  GenerateEvent,
  GenerateRequest,
  PromptEvent,
  ThinkingTags,
  TokenEvent,
} from "./session/generate.ts";
export type { TokenLogprob } from "./session/logprobs.ts";
export { SAMPLING_DEFAULTS, type SamplingParams } from "./session/sampling-params.ts";
export { ContextFullError, EngineCrashedError } from "./session/session-errors.ts";
export type { Conversation, Message, Thinking, ToolDefinition } from "./template/conversation.ts";
export { encodePieces, type PromptPiece } from "./template/pieces.ts";
export { renderConversation } from "./template/render.ts";
export type { StreamingDetokenizer } from "./tokenizer/detokenizer.ts";
export { tokenizerFromGguf } from "./tokenizer/gguf-tables.ts";
export type { Tokenizer } from "./tokenizer/tokenizer.ts";
