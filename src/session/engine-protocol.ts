// The messages between the main thread and the engine's worker, and how errors cross. Plain data only.
import type { BackendStats } from "../backend/backend.ts";
import { CancelledError, Ds4Error, type ErrorCode, MemoryError } from "../core/errors.ts";
import type { KvType } from "../core/kv-type.ts";
import type { Progress } from "../core/progress.ts";
import type { ModelSpec } from "../model/model-spec.ts";
import type { EvaluateRequest, EvaluateResult } from "./evaluate.ts";
import type { GenerateEvent, GenerateRequest } from "./generate.ts";
import { ContextFullError } from "./session-errors.ts";

/** Which implementation runs the model; `auto` takes the fastest that loads. */
export type BackendChoice = "auto" | "cuda" | "cpu" | "reference";

/** What the worker needs to open a model. */
export interface EngineWorkerOptions {
  modelPath: string;
  backend: BackendChoice;
  /** Compute threads; undefined lets the backend choose. */
  threads?: number;
  /** Rows of keys and values on CUDA; "f16" by default. */
  kvType?: KvType;
  /** Context to allocate; undefined takes the default, at most what the model was trained for. */
  ctxTokens?: number;
  /** Most tokens whose logits one call will want: 1 unless texts are scored. Counts in the memory plan. */
  headRows?: number;
  /** Load the model although the memory plan says that it does not fit. */
  force?: boolean;
  /** KV states held at once, and bytes for checkpoints of them; 1 and 0 by default. Both count in the memory plan. */
  slots?: number;
  checkpointBytes?: number;
  /** One Int32: anything but 0 asks to stop loading. */
  cancel?: SharedArrayBuffer;
}

/** What is known of an opened engine. */
export interface EngineInfo {
  backendName: string;
  /** One line for people: device, instruction set, threads. */
  backendDescription: string;
  spec: ModelSpec;
  /** Things the user should know, one line each. */
  warnings: string[];
  loadSeconds: number;
  /** Bytes of weights that were loaded. */
  weightBytes: number;
}

/** Counters and memory of an engine. */
export interface EngineStats extends BackendStats {
  /** Tokens in the session's timeline and room for them. */
  sessionTokens: number;
  ctxTokens: number;
}

/** Logits after a prompt. */
export interface PrefillResult {
  /** [vocabSize], owned by the caller. */
  logits: Float32Array;
  reusedTokens: number;
  seconds: number;
}

/** What can be asked of the worker. */
export type EngineCall =
  | { kind: "generate"; request: GenerateRequest }
  | { kind: "prefill"; tokens: Int32Array; chunkTokens?: number }
  | { kind: "evaluate"; request: EvaluateRequest }
  | { kind: "resize"; ctxTokens: number }
  | { kind: "stats" }
  | { kind: "close" };

/** Answers by kind of call; `generate` answers through events. */
export interface EngineResults {
  generate: undefined;
  prefill: PrefillResult;
  evaluate: EvaluateResult;
  resize: undefined;
  stats: EngineStats;
  close: undefined;
}

/** Main to worker. `cancel` holds one Int32: anything but 0 asks the worker to stop. */
export interface ToWorker {
  id: number;
  call: EngineCall;
  cancel: SharedArrayBuffer;
}

/** Worker to main. Call ids start at 1; progress of loading has id 0. */
export type FromWorker =
  | { kind: "ready"; info: EngineInfo }
  | { kind: "failed"; error: WireError }
  | { kind: "progress"; id: number; progress: Progress }
  | { kind: "event"; id: number; event: GenerateEvent }
  | { kind: "result"; id: number; result: unknown }
  | { kind: "error"; id: number; error: WireError };

/** An error as plain data. */
export interface WireError {
  code: ErrorCode | undefined;
  message: string;
  stack: string | undefined;
  fields: Record<string, number | string>;
}

const FIELD_NAMES = [
  "neededBytes",
  "availableBytes",
  "usedTokens",
  "addedTokens",
  "capacityTokens",
  "hint",
] as const;

/** Makes an error sendable, with the numbers it carries. */
export function toWireError(error: unknown): WireError {
  const known = mapAllocationFailure(error);
  const fields: WireError["fields"] = {};
  for (const name of FIELD_NAMES) {
    const value = (known as unknown as Record<string, unknown>)[name];
    if (typeof value === "number" || typeof value === "string") fields[name] = value;
  }
  const code = known instanceof Ds4Error ? known.code : undefined;
  return { code, message: known.message, stack: known.stack, fields };
}

/** The error again, of its own class where callers may test for it. */
export function fromWireError({ code, message, stack, fields }: WireError): Error {
  const number = (name: string) => Number(fields[name]);
  if (code === undefined) return new Error(message, { cause: stack });
  if (code === "cancelled") return new CancelledError(message);
  if (code === "memory" && "neededBytes" in fields) {
    return new MemoryError(message, number("neededBytes"), number("availableBytes"));
  }
  if (code === "context-full" && "hint" in fields) {
    const [used, added] = [number("usedTokens"), number("addedTokens")];
    return new ContextFullError(used, added, number("capacityTokens"), String(fields.hint));
  }
  return new Ds4Error(code, message, { cause: stack });
}

// V8 reports a typed array that does not fit as a RangeError; the caller should see a memory error.
function mapAllocationFailure(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  if (error instanceof RangeError && /allocation failed|invalid (typed )?array/i.test(error.message)) {
    return new Ds4Error("memory", `an allocation failed: ${error.message}`, { cause: error });
  }
  return error;
}
