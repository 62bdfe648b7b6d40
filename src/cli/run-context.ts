// What every mode of the root command shares: the model's text side, the engine, the prompt, the way requests are
// built from flags, and interruption.
import { readFileSync } from "node:fs";
import { type OpenModel, readModel, resolveModelPath } from "../api/open-model.ts";
import { Ds4Error, UsageError } from "../core/errors.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { withGguf } from "../gguf/open-gguf.ts";
import { raiseOomScoreFor } from "../machine/oom-score.ts";
import type { GenerateRequest, ThinkingTags } from "../session/generate.ts";
import type { SamplingParams } from "../session/sampling-params.ts";
import { SessionEngine } from "../session/session-engine.ts";
import type { Thinking } from "../template/conversation.ts";
import { SPECIAL_TEXT } from "../tokenizer/tokenizer-tables.ts";
import { backendOf } from "./backend-flags.ts";
import { ChatPrompt } from "./chat-prompt.ts";
import { checkTrainedCtx } from "./flag-values.ts";
import { decideRun } from "./open-backend.ts";
import { ProgressBar } from "./progress-bar.ts";
import { type RunFlags, samplingOf } from "./run-options.ts";
import { loadLine } from "./summary.ts";
import { note, type Terminal } from "./terminal.ts";

/** Largest prompt or text file: far above a million tokens, far below what would exhaust the heap. */
const MAX_TEXT_BYTES = 64 * 1024 * 1024;

/** Loads from this length on are worth a line, as they were worth a progress bar. */
const LOAD_LINE_FROM_SECONDS = 2;

/** Reads a UTF-8 text file; `-` is standard input. Throws `usage` when it cannot be read, is too large or binary. */
export function readTextFile(path: string, flag: string): string {
  let bytes: Buffer;
  try {
    bytes = readFileSync(path === "-" ? 0 : path);
  } catch (error) {
    throw new UsageError(`${flag} ${path}: ${(error as Error).message}`);
  }
  if (bytes.length > MAX_TEXT_BYTES) {
    throw new UsageError(`${flag} ${path}: expected at most ${MAX_TEXT_BYTES} bytes, got ${bytes.length}`);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch {
    throw new UsageError(`${flag} ${path}: expected UTF-8 text`);
  }
}

/** The engine checks again and warns; this refusal comes before the tokenizer is built and the worker started. */
function refuseUnfit(file: GgufFile, flags: RunFlags, ctx = flags.ctx): void {
  const ctxTokens = flags.perplexityFile === undefined ? ctx : (flags.pplCtx ?? ctx);
  const { threads, kvType } = flags;
  decideRun(file, { backend: backendOf(flags), threads, kvType, ctxTokens, force: flags.force === true });
}

/** One run of the root command. */
export class RunContext {
  readonly flags: RunFlags;
  readonly terminal: Terminal;
  readonly model: OpenModel;
  readonly bar: ProgressBar;
  readonly prompt: ChatPrompt;
  readonly sampling: SamplingParams;

  /** Opens the model's text side. Throws what `openModel` throws, `usage`, and `memory` when it cannot be loaded. */
  constructor(flags: RunFlags, terminal: Terminal) {
    this.flags = flags;
    this.terminal = terminal;
    const path = resolveModelPath(flags.model);
    this.model = withGguf(path, (file) => {
      if (!flags.dumpTokens) refuseUnfit(file, flags);
      return readModel(file, path);
    });
    this.bar = new ProgressBar(terminal);
    this.prompt = new ChatPrompt(this.model.tokenizer, flags.system, this.model.checkpoint);
    this.sampling = samplingOf(flags);
    this.#checkBias();
    if (flags.ctx !== undefined) this.checkCtx(flags.ctx, "--ctx");
  }

  get isRaw(): boolean {
    return this.flags.raw === true || this.flags.rawPrompt === true;
  }

  /** The prompt's text, if the flags give one. */
  promptText(): string | undefined {
    const { prompt, promptFile } = this.flags;
    return promptFile === undefined ? prompt : readTextFile(promptFile, "--prompt-file");
  }

  /** The tokens of a one-shot prompt. Throws `usage` when it is empty. */
  promptTokens(text: string, thinking: Thinking): Int32Array {
    if (text === "") throw new UsageError("the prompt is empty: give it some text");
    if (this.isRaw) return this.model.tokenizer.encode(text, { allowSpecial: true });
    const head = this.prompt.head(thinking);
    const turn = this.prompt.turn(text, thinking);
    const tokens = new Int32Array(head.length + turn.length);
    tokens.set(head);
    tokens.set(turn, head.length);
    return tokens;
  }

  /** A request with the flags' sampling, stop strings and limits. */
  request(promptTokens: Int32Array, thinking: Thinking): GenerateRequest {
    const { flags } = this;
    return {
      promptTokens,
      sampling: this.sampling,
      maxTokens: flags.tokens,
      stopTokenIds: this.model.tokenizer.stopIds,
      stopStrings: flags.stop,
      thinking: this.isRaw ? undefined : this.#thinkingTags(thinking),
      chunkTokens: flags.prefillChunk,
    };
  }

  /** Loads the weights, with progress and warnings; Ctrl+C stops it (`cancelled`). `headRows`, `ctxTokens`: see `EngineWorkerOptions`. */
  async openEngine(demand: { headRows?: number; ctxTokens?: number } = {}): Promise<SessionEngine> {
    const { flags, terminal, bar, model } = this;
    const oomScore = raiseOomScoreFor(model.sizeBytes);
    const engine = await interruptible((signal) =>
      SessionEngine.open({
        modelPath: model.path,
        backend: backendOf(flags),
        threads: flags.threads,
        kvType: flags.kvType,
        ctxTokens: demand.ctxTokens ?? flags.ctx,
        headRows: demand.headRows,
        force: flags.force === true,
        signal,
        onProgress: bar.listener,
      }),
    ).finally(() => bar.clear());
    for (const warning of engine.info.warnings) note(terminal, `warning: ${warning}`);
    if (engine.info.loadSeconds >= LOAD_LINE_FROM_SECONDS) note(terminal, loadLine(engine.info, oomScore));
    return engine;
  }

  /** Throws `usage` when the model was trained for less. */
  checkCtx(ctxTokens: number, name: string): void {
    checkTrainedCtx(this.model.trainedCtxTokens, ctxTokens, name);
  }

  /** Throws `memory` when the loaded model with another context would not fit. */
  checkMemory(ctxTokens: number): void {
    withGguf(this.model.path, (file) => refuseUnfit(file, this.flags, ctxTokens));
  }

  #thinkingTags(thinking: Thinking): ThinkingTags | undefined {
    const { tokenizer } = this.model;
    const openId = tokenizer.specialId(SPECIAL_TEXT.thinkStart);
    const closeId = tokenizer.specialId(SPECIAL_TEXT.thinkEnd);
    if (openId === undefined || closeId === undefined) return undefined;
    return { openId, closeId, startsOpen: thinking !== "off", budgetTokens: this.flags.thinkBudget };
  }

  #checkBias(): void {
    const { vocabSize } = this.model.tokenizer;
    for (const id of Object.keys(this.sampling.logitBias)) {
      if (Number(id) < vocabSize) continue;
      throw new UsageError(`--logit-bias: expected token ids in 0..${vocabSize - 1}, got ${id}`);
    }
  }
}

/**
 * Runs `work` with a signal that Ctrl+C aborts. A second Ctrl+C ends the process at once, in case the work
 * cannot stop.
 */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const onInterrupt = () => {
    if (controller.signal.aborted) process.exit(130);
    controller.abort();
  };
  process.on("SIGINT", onInterrupt);
  try {
    return await work(controller.signal);
  } finally {
    process.removeListener("SIGINT", onInterrupt);
  }
}

/** The message of an error for people: expected errors without their stack, our own bugs with it. */
export function describeError(error: unknown): string {
  if (error instanceof Ds4Error) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
