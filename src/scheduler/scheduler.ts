// The heart of the scheduler, without threads or clocks of its own: requests wait, take slots, and every step runs ONE
// forward call for all of them. Deterministic given its calls, so that every interleaving can be tested.
import type { Backend, ForwardResult, TokenRange, TopLogits } from "../backend/backend.ts";
import { Ds4Error } from "../core/errors.ts";
import type { Progress } from "../core/progress.ts";
import type { FinishReason, OpenConstraint, TokenDecoder } from "../session/generate.ts";
import { type BatchEntry, ChunkPacer, nextPrefill } from "./batch-plan.ts";
import { checkRequest } from "./check-request.ts";
import { CheckpointPool } from "./checkpoint-pool.ts";
import { faultText, isDeviceLost, probeBackend } from "./faults.ts";
import { Job, type JobControl } from "./job.ts";
import type { KvDisk } from "./kv-disk-types.ts";
import { PrefixReuse } from "./prefix-reuse.ts";
import { BackendFaultError } from "./scheduler-errors.ts";
import { observe, SchedulerMetrics } from "./scheduler-metrics.ts";
import { schedulerStats } from "./scheduler-stats.ts";
import type {
  Health,
  ScheduledEvent,
  ScheduledRequest,
  SchedulerLimits,
  SchedulerStats,
} from "./scheduler-types.ts";
import { Slot } from "./slot.ts";

const DEFAULT_CHECKPOINT_TOKENS = 2048;
const DEFAULT_DECODE_GAP_MS = 200;
const DEFAULT_EVENT_WINDOW = 256;
/** Saved states of fewer tokens are read again faster than they are found. */
const DISK_MIN_TOKENS = 512;

/** Where results go. Called within `step`; must not throw. */
export interface SchedulerSink {
  events(id: number, events: ScheduledEvent[]): void;
  error(id: number, error: Error): void;
  progress(id: number, progress: Progress): void;
  /** The health changed to `failed`. */
  failed(reason: string): void;
  log(line: string): void;
  /** There may be work again. */
  wake(): void;
}

/** What a scheduler runs on. */
export interface SchedulerParts {
  backend: Backend;
  createDecoder(): TokenDecoder;
  openConstraint?: OpenConstraint;
  disk?: KvDisk;
  sink: SchedulerSink;
  /** Milliseconds, monotonic. */
  now?: () => number;
}

/** Limits, and the context of each slot. */
export interface SchedulerSettings extends SchedulerLimits {
  ctxTokens: number;
}

/** See the file's head. Allocates all KV states at once. Throws `memory` when they do not fit, `usage` on limits. */
export class Scheduler {
  readonly #parts: SchedulerParts;
  readonly #settings: SchedulerSettings;
  readonly #now: () => number;
  readonly #slots: Slot[] = [];
  readonly #queue: Job[] = [];
  readonly #pool: CheckpointPool;
  readonly #reuse: PrefixReuse;
  readonly #pacer: ChunkPacer;
  readonly #metrics = new SchedulerMetrics();
  readonly #health: Health = { state: "ready", reason: undefined };
  #turn = 0;

  constructor(parts: SchedulerParts, settings: SchedulerSettings) {
    const { backend, disk, sink } = parts;
    const { slots, chunkTokens, ctxTokens } = settings;
    if (slots >= backend.maxBatchTokens) {
      const limit = backend.maxBatchTokens - 1;
      throw new Ds4Error(
        "usage",
        `slots: this backend batches at most ${limit} sequences and a chunk, got ${slots}`,
      );
    }
    this.#parts = parts;
    this.#settings = settings;
    this.#now = parts.now ?? (() => performance.now());
    try {
      for (let index = 0; index < slots; index++) this.#slots.push(new Slot(index, backend, ctxTokens));
    } catch (error) {
      for (const slot of this.#slots) slot.kv.close();
      throw error;
    }
    this.#pool = new CheckpointPool(settings.checkpointBytes ?? 0, this.#now);
    this.#pacer = new ChunkPacer(
      settings.decodeGapMs ?? DEFAULT_DECODE_GAP_MS,
      Math.min(chunkTokens, backend.maxBatchTokens),
    );
    this.#reuse = new PrefixReuse({
      slots: this.#slots,
      pool: this.#pool,
      disk,
      checkpointTokens: settings.checkpointTokens ?? DEFAULT_CHECKPOINT_TOKENS,
      diskMinTokens: settings.kvDiskMinTokens ?? DISK_MIN_TOKENS,
      now: this.#now,
      onLoaded: () => sink.wake(),
      log: (line) => sink.log(line),
    });
  }

  /** Queues a request; what is wrong with it is answered as its error. */
  submit(id: number, request: ScheduledRequest, control: JobControl): void {
    const { backend, createDecoder, openConstraint, sink } = this.#parts;
    try {
      if (this.#health.state === "failed") throw new BackendFaultError(this.#health.reason!);
      checkRequest(request, { ctxTokens: this.#settings.ctxTokens, spec: backend.spec });
      const options = { id, request, control, nowMs: this.#now() };
      const { ctxTokens } = this.#settings;
      this.#queue.push(new Job(options, ctxTokens, backend, createDecoder(), openConstraint));
      this.#metrics.counters.accepted++;
    } catch (error) {
      this.#metrics.counters.refused++;
      sink.error(id, error as Error);
    }
  }

  /**
   * One iteration: ends what was cancelled, fills free slots, and runs one forward call. False when nothing can be done
   * until `submit`, a changed control or `wake`.
   */
  step(): boolean {
    this.#endCancelled();
    this.#fillSlots();
    const entries = this.#planBatch();
    if (entries.length > 0) this.#run(entries);
    for (const job of this.#jobs()) this.#flush(job);
    return entries.length > 0;
  }

  /** Everything that is counted. */
  stats(): SchedulerStats {
    return schedulerStats({
      backend: this.#parts.backend,
      disk: this.#parts.disk,
      slots: this.#slots,
      pool: this.#pool,
      metrics: this.#metrics,
      health: this.#health,
      queueLength: this.#queue.length,
      ctxTokens: this.#settings.ctxTokens,
      isPaused: (job) => job.isPaused(this.#windowEvents),
    });
  }

  /** Ends all requests as cancelled, saves the slots to disk, frees the KV states. */
  async close(): Promise<void> {
    for (const job of [...this.#queue, ...this.#jobs()]) this.#finish(job, "cancelled");
    if (this.#health.state === "ready") this.#reuse.saveAll();
    await this.#parts.disk?.close();
    for (const slot of this.#slots) slot.kv.close();
  }

  get #windowEvents(): number {
    return this.#settings.eventWindow ?? DEFAULT_EVENT_WINDOW;
  }

  #jobs(): Job[] {
    return this.#slots.flatMap(({ job }) => job ?? []);
  }

  #endCancelled(): void {
    for (const job of [...this.#queue, ...this.#jobs()]) {
      if (job.control.cancelled) this.#finish(job, "cancelled");
    }
  }

  #fillSlots(): void {
    while (this.#queue.length > 0 && this.#reuse.place(this.#queue[0])) {
      const job = this.#queue.shift()!;
      // All of the prompt may be there already: the same request again after a cancelled one.
      if (job.slot!.lengthTokens === job.promptTokens.length) this.#promptDone(job, job.slot!.logits!);
    }
  }

  #planBatch(): BatchEntry[] {
    const jobs = this.#jobs();
    const entries: BatchEntry[] = jobs
      .filter((job) => job.state === "decode" && !job.isPaused(this.#windowEvents))
      .map((job) => {
        const fromTokens = job.slot!.lengthTokens;
        return { job, tokens: Int32Array.of(job.nextToken), fromTokens, isChunk: false };
      });
    const prefilling = jobs.filter((job) => job.state === "prefill");
    const limit = Math.min(
      this.#pacer.chunkTokens(entries.length),
      this.#parts.backend.maxBatchTokens - entries.length,
    );
    const job = nextPrefill(prefilling, limit, this.#turn++);
    if (job !== undefined) {
      const count = Math.min(limit, job.request.chunkTokens ?? limit, this.#reuse.tokensToCheckpoint(job));
      const fromTokens = job.slot!.lengthTokens;
      const tokens = job.promptTokens.subarray(fromTokens, fromTokens + count);
      entries.push({ job, tokens, fromTokens, isChunk: true });
    }
    return entries;
  }

  #run(entries: readonly BatchEntry[]): void {
    const started = this.#now();
    let result: ForwardResult;
    try {
      result = this.#parts.backend.forward(entries.map(rangeOf));
    } catch (error) {
      this.#fault(entries, error);
      return;
    }
    this.#pacer.observe(entries, this.#now() - started);
    for (const [at, entry] of entries.entries()) this.#apply(entry, result, at);
    const decoded = entries.filter((entry) => !entry.isChunk).length;
    if (decoded === 0) return;
    this.#metrics.counters.decodeSteps++;
    this.#metrics.counters.decodeSequences += decoded;
  }

  #apply({ job, tokens, isChunk }: BatchEntry, { logits, top }: ForwardResult, at: number): void {
    const slot = job.slot!;
    slot.appended(tokens, top[at] === undefined ? logits[at] : undefined);
    slot.lastUsedMs = this.#now();
    job.dropRestored = undefined;
    if (!isChunk) {
      this.#advance(job, top[at] ?? logits[at]);
      return;
    }
    this.#reuse.afterChunk(job);
    const total = job.promptTokens.length - job.reusedTokens;
    const done = slot.lengthTokens - job.reusedTokens;
    this.#parts.sink.progress(job.id, { label: "prefill", done, total, unit: "tokens" });
    if (done === total) this.#promptDone(job, logits[at]);
  }

  #promptDone(job: Job, logits: Float32Array): void {
    job.promptDone(this.#now());
    const { counters } = this.#metrics;
    counters.promptTokens += job.promptTokens.length;
    counters.reusedTokens += job.reusedTokens;
    counters.reuse[job.reusedFrom]++;
    this.#advance(job, logits);
  }

  #advance(job: Job, logits: Float32Array | TopLogits): void {
    const before = job.completionTokens;
    try {
      const reason = job.advance(logits, job.slot!.tokens, this.#now());
      if (job.completionTokens > before) this.#countToken(job);
      if (reason !== undefined) this.#finish(job, reason);
    } catch (error) {
      this.#failJob(job, error); // damaged logits, a constraint that cannot be followed
    }
  }

  #countToken(job: Job): void {
    const { timeToFirstToken, interToken, counters } = this.#metrics;
    counters.completionTokens++;
    observe(job.isFirstToken ? timeToFirstToken : interToken, job.tokenGapSeconds!);
  }

  // Ranges are checked before anything is computed and a failed call leaves states as they were, so each sequence can
  // be tried alone: only those that are to blame end.
  #fault(entries: readonly BatchEntry[], error: unknown): void {
    this.#metrics.counters.forwardFaults++;
    this.#parts.sink.log(`a forward call of ${entries.length} sequences failed: ${faultText(error)}`);
    const isLost = isDeviceLost(error);
    if (isLost) this.#failAll(error);
    else if (entries.length === 1) this.#faultOf(entries[0], error);
    if (isLost || entries.length === 1) return;
    for (const entry of entries) {
      try {
        // A state that moved although its call failed cannot be trusted.
        if (entry.job.slot!.lengthTokens !== entry.fromTokens) throw error;
        this.#apply(entry, this.#parts.backend.forward([rangeOf(entry)]), 0);
      } catch (own) {
        if (isDeviceLost(own)) this.#failAll(own);
        else this.#faultOf(entry, own);
        if (this.#health.state === "failed") return;
      }
    }
  }

  #faultOf({ job }: BatchEntry, error: unknown): void {
    const slot = job.slot!;
    if (job.dropRestored !== undefined) this.#reuse.startCold(job);
    else this.#failJob(job, error);
    // Either way the slot is empty now.
    if (!probeBackend(this.#parts.backend, slot)) this.#failAll(error);
  }

  #failJob(job: Job, error: unknown): void {
    const slot = job.slot!;
    this.#flush(job);
    slot.job = undefined;
    slot.reset();
    this.#metrics.counters.failed++;
    // A request that proves impossible is no fault of the backend.
    const isOwn = error instanceof Ds4Error && error.code === "request";
    const reason = isOwn ? error : new BackendFaultError(faultText(error), { cause: error });
    this.#parts.sink.error(job.id, reason);
  }

  #failAll(error: unknown): void {
    this.#health.state = "failed";
    this.#health.reason = faultText(error);
    this.#parts.sink.failed(this.#health.reason);
    for (const job of this.#jobs()) this.#failJob(job, error);
    for (const job of this.#queue.splice(0)) {
      this.#metrics.counters.failed++;
      this.#parts.sink.error(job.id, new BackendFaultError(faultText(error), { cause: error }));
    }
  }

  #finish(job: Job, reason: FinishReason): void {
    const nowMs = this.#now();
    job.finish(reason, nowMs);
    this.#metrics.counters[reason === "cancelled" ? "cancelled" : "finished"]++;
    this.#flush(job);
    const waiting = this.#queue.indexOf(job);
    if (waiting >= 0) this.#queue.splice(waiting, 1);
    const { slot } = job;
    if (slot === undefined) return;
    slot.job = undefined;
    slot.lastUsedMs = nowMs;
  }

  #flush(job: Job): void {
    const events = job.takeEvents();
    if (events.length > 0) this.#parts.sink.events(job.id, events);
  }
}

function rangeOf({ job, tokens, isChunk }: BatchEntry): TokenRange {
  // A row at every chunk's end, not only the last: a cancelled prompt can then be continued from anywhere. Beside a chunk it
  // costs little, beside a token it does not.
  return { kv: job.slot!.kv, tokens, logits: isChunk ? "last" : job.logitsWanted };
}
