// The package's front door: a model in this process that is asked as the OpenAI SDK asks a server. Composes what the
// server composes, without a port: scheduler, answers, wire.
import { Ds4Error, MemoryError } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import { SchedulerEngine, type SchedulerOptions } from "../scheduler/scheduler-engine.ts";
import type { Health, SchedulerInfo, SchedulerStats } from "../scheduler/scheduler-types.ts";
import { AnswerRunner } from "../server/answer-run.ts";
import { type MemoryFiles, openMemoryFiles } from "../server/memory-files.ts";
import { ServerMetrics } from "../server/metrics.ts";
import { SILENT_LOG } from "../server/server-log.ts";
import type { BackendChoice } from "../session/engine-protocol.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { toDs4Error } from "./api-failure.ts";
import { ChatCompletions } from "./chat-completions.ts";
import { Models } from "./models.ts";
import { type OpenModel, openModel, resolveModelPath } from "./open-model.ts";
import { servedModel } from "./served-model.ts";

const DEFAULT_SLOTS = 2;
const DEFAULT_CHUNK_TOKENS = 512;
const DEFAULT_CHECKPOINT_BYTES = 512 * 2 ** 20;
/** A batch of prompts waits in memory, not at clients that could try again. */
const DEFAULT_QUEUE_LIMIT = 4096;

/** How to open an engine. */
export interface EngineOptions {
  /** GGUF file, or the first part of a split one. Default: the bundled nano model. */
  model?: string;
  /** The model's name in answers. Default: the file's name. */
  modelId?: string;
  /** Context of each slot: prompt and answer together. Default 32768, at most the model's. */
  ctxTokens?: number;
  /** Conversations held and decoded at once. Default 2, or 1 without checkpoints where memory is short. */
  slots?: number;
  /** Memory for states that a conversation can go back to. Default 512 MiB. */
  checkpointBytes?: number;
  /** Folder of saved states, which a later engine finds again. Default: none are saved. */
  kvDiskFolder?: string;
  /** Most space for them. Default 8 GiB. */
  kvDiskBytes?: number;
  /** Default `auto`: cuda where a GPU holds the model, else cpu. */
  backend?: BackendChoice;
  /** Precision of the KV rows on a GPU. Default `f16`. */
  kvType?: SchedulerOptions["kvType"];
  /** Compute threads. Default: the backend's choice. */
  threads?: number;
  /** Most prompt tokens of one pass. Default 512. */
  chunkTokens?: number;
  /** Most tokens of an answer when a request names none. Default: what the context has left. */
  maxTokens?: number;
  /** Requests that may wait for a slot; more are refused with `queue-full`. Default 4096. */
  queueLimit?: number;
  /** Load the model although the memory plan says that it does not fit. */
  force?: boolean;
  /** Aborting it stops loading, with `cancelled`; afterwards it means nothing. */
  signal?: AbortSignal;
  /** Progress of loading. */
  onProgress?: ProgressListener;
  /** Takes a line at a time: warnings, faults, cache files refused. Never holds text of people. */
  onLog?: (line: string) => void;
}

/** A loaded model. Many requests may run at once. */
export class Engine {
  /** Chat requests. */
  readonly chat: { readonly completions: ChatCompletions };
  /** What is loaded. */
  readonly models: Models;
  /** Tokens and special tokens of the model. */
  readonly tokenizer: Tokenizer;
  /** The layer below: requests of token ids. */
  readonly scheduler: SchedulerEngine;
  readonly #memories: MemoryFiles;
  readonly #running = new Set<AbortController>();
  #isClosed = false;

  /**
   * Loads the model in a worker thread. Throws `usage` (no such file, wrong numbers), `gguf`, `unsupported-model`,
   * `memory`, `native`, `cuda`, `cancelled`, `io`, or `EngineCrashedError`.
   */
  static async open(options: EngineOptions = {}): Promise<Engine> {
    const model = openModel(resolveModelPath(options.model));
    const scheduler = await openScheduler(model.path, options);
    const { onLog } = options;
    for (const warning of scheduler.info.warnings) onLog?.(`warning: ${warning}`);
    return new Engine(model, scheduler, options);
  }

  private constructor(model: OpenModel, scheduler: SchedulerEngine, options: EngineOptions) {
    const log = { ...SILENT_LOG, line: options.onLog ?? (() => {}) };
    this.scheduler = scheduler;
    this.tokenizer = model.tokenizer;
    this.#memories = openMemoryFiles(options.kvDiskFolder, log);
    const served = servedModel(model, scheduler, {
      id: options.modelId,
      defaultMaxTokens: options.maxTokens,
    });
    const runner = new AnswerRunner({
      model: served,
      maxQueued: Number.POSITIVE_INFINITY,
      metrics: new ServerMetrics(),
      log,
      calls: this.#memories.calls,
      answers: this.#memories.answers,
      onFault: (error) => log.line(`fault: ${error.message}`),
    });
    const failure = (thrown: unknown) => toDs4Error(thrown, scheduler.info.queueLimit);
    const register = (controller: AbortController) => {
      if (this.#isClosed) throw new Ds4Error("session", "the engine is closed");
      this.#running.add(controller);
      return () => void this.#running.delete(controller);
    };
    this.chat = { completions: new ChatCompletions({ runner, register, failure }) };
    this.models = new Models(served, failure);
  }

  /** What is known of the model, the backend and the limits. */
  get info(): SchedulerInfo {
    return this.scheduler.info;
  }

  /** `failed` once no request can be answered any more: open a new engine, for a lost device in a new process. */
  get health(): Health {
    return this.scheduler.health;
  }

  /** Counters, slots, memory. */
  stats(): Promise<SchedulerStats> {
    return this.scheduler.stats();
  }

  /** Ends running answers as cancelled, saves states if there is a folder for them, frees the model. Twice is harmless. */
  async close(): Promise<void> {
    const isFirst = !this.#isClosed;
    this.#isClosed = true;
    for (const controller of this.#running) controller.abort();
    if (isFirst) this.#memories.save();
    await this.scheduler.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** With what was asked for, or, where nothing was, with the most that fits. */
async function openScheduler(modelPath: string, options: EngineOptions): Promise<SchedulerEngine> {
  const { slots, checkpointBytes, chunkTokens, queueLimit } = options;
  const { model: _, modelId: __, maxTokens: ___, ...rest } = options;
  const base: SchedulerOptions = {
    ...rest,
    modelPath,
    slots: slots ?? DEFAULT_SLOTS,
    headRows: slots ?? DEFAULT_SLOTS,
    checkpointBytes: checkpointBytes ?? DEFAULT_CHECKPOINT_BYTES,
    chunkTokens: chunkTokens ?? DEFAULT_CHUNK_TOKENS,
    queueLimit: queueLimit ?? DEFAULT_QUEUE_LIMIT,
  };
  try {
    return await SchedulerEngine.open(base);
  } catch (error) {
    if (!(error instanceof MemoryError) || slots !== undefined) throw error;
    const least = { slots: 1, headRows: 1, checkpointBytes: checkpointBytes ?? 0 };
    return await SchedulerEngine.open({ ...base, ...least });
  }
}
