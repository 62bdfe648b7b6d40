// The public surface of the package: re-exports only.

export { ChatCompletions } from "./api/chat-completions.ts";
export type {
  ChatCompletionParams,
  ChatContent,
  ChatContentPart,
  ChatMessageParam,
  ChatResponseFormat,
  ChatToolChoice,
  ChatToolParam,
  ReasoningEffort,
  RequestOptions,
} from "./api/chat-params.ts";
export { ChatCompletionStream } from "./api/chat-stream.ts";
export { Engine, type EngineOptions } from "./api/engine.ts";
export type { ModelList, Models } from "./api/models.ts";
export { BUNDLED_MODEL_PATH } from "./api/open-model.ts";
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
  RequestError,
  UnsupportedModelError,
  UsageError,
} from "./core/errors.ts";
export type { Progress, ProgressListener } from "./core/progress.ts";
export { type AnswerParser, createAnswerParser } from "./dsml/answer-parser.ts";
export type {
  AnswerEnd,
  AnswerParserOptions,
  MalformedCall,
  MarkRange,
  ParseEvent,
  SampledText,
} from "./dsml/events.ts";
export type { GgufFile, MetadataValue, TensorInfo } from "./gguf/gguf-file.ts";
export { openGguf } from "./gguf/open-gguf.ts";
export type { ModelSpec } from "./model/model-spec.ts";
export { SchedulerEngine, type SchedulerOptions } from "./scheduler/scheduler-engine.ts";
export { BackendFaultError, QueueFullError } from "./scheduler/scheduler-errors.ts";
export type {
  Health,
  ReuseSource,
  ScheduledEvent,
  ScheduledRequest,
  SchedulerInfo,
  SchedulerLimits,
  SchedulerStats,
} from "./scheduler/scheduler-types.ts";
export type { ModelObject } from "./server/wire/model-object.ts";
export type {
  ChatAnswerMessage,
  ChatCompletion,
  ChatCompletionChunk,
  ChatDelta,
  ChatFinishReason,
  ChatLogprobs,
  ChatTimings,
  ChatToolCall,
  ChatToolCallDelta,
  ChatUsage,
} from "./server/wire/openai-chat-types.ts";
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
export { type CallOptions, SessionEngine, type SessionEngineOptions } from "./session/session-engine.ts";
export { ContextFullError, EngineCrashedError } from "./session/session-errors.ts";
export type { Conversation, Message, Thinking, ToolDefinition } from "./template/conversation.ts";
export { encodePieces, type PromptPiece } from "./template/pieces.ts";
export { renderConversation } from "./template/render.ts";
export type { StreamingDetokenizer } from "./tokenizer/detokenizer.ts";
export { tokenizerFromGguf } from "./tokenizer/gguf-tables.ts";
export type { Tokenizer } from "./tokenizer/tokenizer.ts";
