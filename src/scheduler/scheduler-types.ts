// What callers of the scheduler see: requests, events, statistics. Plain data that crosses threads.
import type { BackendStats } from "../backend/backend.ts";
import type { EngineInfo, EngineWorkerOptions } from "../session/engine-protocol.ts";
import type { FinishEvent, GenerateRequest, PromptEvent, TokenEvent } from "../session/generate.ts";

/** Limits and budgets of the scheduler. */
export interface SchedulerLimits {
  /** Sequences held at once, each with a KV state of `ctxTokens`. */
  slots: number;
  /** Requests that may wait for a slot; more are refused with `queue-full`. */
  queueLimit: number;
  /** Most prompt tokens of one forward call; at most the backend's `maxBatchTokens`. */
  chunkTokens: number;
  /** Folder of saved KV states; undefined keeps none. */
  kvDiskFolder?: string;
  /** Most bytes of saved states of this model. Default 8 GiB. */
  kvDiskBytes?: number;
  /** Shorter states, and states that add less, are not saved or loaded. Default 512. */
  kvDiskMinTokens?: number;
  /** Memory for checkpoints between which a slot can go back; counted in the plan. Default 0: none are kept. */
  checkpointBytes?: number;
  /** Distance of checkpoints within a prompt. Default 2048. */
  checkpointTokens?: number;
  /** While others decode, a prompt's chunk is cut so that one step takes about this long. Default 200. */
  decodeGapMs?: number;
  /** Events that may wait for a slow reader before its request pauses. Default 256. */
  eventWindow?: number;
}

/** What the scheduler's worker is started with. */
export type SchedulerWorkerOptions = EngineWorkerOptions & SchedulerLimits;

/** A request for an answer. */
export interface ScheduledRequest extends GenerateRequest {
  /** Names the conversation: requests of one name supersede each other's branches first. Never a promise of reuse. */
  cacheKey?: string;
}

/** Where the reused tokens came from. */
export type ReuseSource = "none" | "slot" | "checkpoint" | "disk";

/** What scheduling adds to the first and the last event. */
export interface SchedulingFacts {
  reusedFrom: ReuseSource;
  /** From arrival until a slot was taken. */
  queueSeconds: number;
  /** Which slot ran it, -1 when it never got one. */
  slot: number;
}

/** The prompt is evaluated. */
export interface ScheduledPromptEvent extends PromptEvent, SchedulingFacts {}
/** The last event of an answer. Faults are thrown, not reported here. */
export interface ScheduledFinishEvent extends FinishEvent, SchedulingFacts {}
/** One `prompt`, then `token` events, then one `finish`; a request cancelled before that has only a `finish`. */
export type ScheduledEvent = ScheduledPromptEvent | TokenEvent | ScheduledFinishEvent;

/** What a slot does. `paused`: its reader is behind. */
export type SlotState = "empty" | "idle" | "loading" | "prefill" | "decode" | "paused";

/** One slot. */
export interface SlotStats {
  state: SlotState;
  /** Tokens in its timeline and room for them. */
  tokens: number;
  ctxTokens: number;
  /** Of the request it serves. */
  requestId: number | undefined;
}

/** Counts per bucket; `counts` has one more entry than `bounds`, for what lies above all of them. */
export interface Histogram {
  /** Upper bounds, ascending. */
  bounds: readonly number[];
  counts: number[];
  sum: number;
  count: number;
}

/** Counters since the start. Requests end as exactly one of finished, cancelled and failed. */
export interface SchedulerCounters {
  accepted: number;
  refused: number;
  finished: number;
  cancelled: number;
  failed: number;
  promptTokens: number;
  reusedTokens: number;
  completionTokens: number;
  /** Requests by where their reused tokens came from. */
  reuse: Record<ReuseSource, number>;
  forwardFaults: number;
  /** Batched steps, and the sequences that decoded in them. */
  decodeSteps: number;
  decodeSequences: number;
  checkpointsSaved: number;
  checkpointsEvicted: number;
  diskSaved: number;
  diskEvicted: number;
  diskRejected: number;
}

/** `ready`: serving. `failed`: the backend does not answer any more; start a new process. */
export interface Health {
  state: "ready" | "failed";
  /** The last fault. */
  reason: string | undefined;
}

/** Everything that `/metrics` and the status panel show. */
export interface SchedulerStats {
  backend: BackendStats;
  health: Health;
  slots: SlotStats[];
  queueLength: number;
  counters: SchedulerCounters;
  /** Seconds from arrival to the first token. */
  timeToFirstToken: Histogram;
  /** Seconds between two tokens of one request. */
  interToken: Histogram;
  /** Bytes of KV states: in slots, as checkpoints in memory, saved on disk. */
  kvBytes: { slots: number; checkpoints: number; checkpointLimit: number; disk: number; diskLimit: number };
  /** Saved states in memory and on disk. */
  checkpointCount: number;
  diskCount: number;
}

/** What is known of an opened scheduler. */
export interface SchedulerInfo extends EngineInfo {
  slots: number;
  /** Context of each slot. */
  ctxTokens: number;
  queueLimit: number;
}
