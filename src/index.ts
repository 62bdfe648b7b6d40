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
  CancelledError,
  Ds4Error,
  type ErrorCode,
  GgufError,
  MemoryError,
  UnsupportedModelError,
  UsageError,
} from "./core/errors.ts";
export type { ModelSpec } from "./model/model-spec.ts";
