// The scheduler's state as plain data.
import type { Backend } from "../backend/backend.ts";
import type { CheckpointPool } from "./checkpoint-pool.ts";
import type { Job } from "./job.ts";
import type { KvDisk } from "./kv-disk-types.ts";
import type { SchedulerMetrics } from "./scheduler-metrics.ts";
import type { Health, SchedulerStats, SlotState } from "./scheduler-types.ts";
import type { Slot } from "./slot.ts";

/** What is reported on. */
export interface StatsSource {
  backend: Backend;
  disk: KvDisk | undefined;
  slots: readonly Slot[];
  pool: CheckpointPool;
  metrics: SchedulerMetrics;
  health: Health;
  queueLength: number;
  ctxTokens: number;
  isPaused(job: Job): boolean;
}

/** A copy of everything that is counted. */
export function schedulerStats(source: StatsSource): SchedulerStats {
  const { backend, disk, slots, pool, metrics, health, queueLength, ctxTokens } = source;
  const stateOf = ({ job, lengthTokens }: Slot): SlotState => {
    if (job === undefined) return lengthTokens === 0 ? "empty" : "idle";
    if (job.state === "decode") return source.isPaused(job) ? "paused" : "decode";
    return job.state === "loading" ? "loading" : "prefill";
  };
  return {
    backend: backend.stats(),
    health: { ...health },
    slots: slots.map((slot) => ({
      state: stateOf(slot),
      tokens: slot.lengthTokens,
      ctxTokens,
      requestId: slot.job?.id,
    })),
    queueLength,
    counters: {
      ...metrics.counters,
      reuse: { ...metrics.counters.reuse },
      checkpointsSaved: pool.savedCount,
      checkpointsEvicted: pool.evictedCount,
      diskSaved: disk?.savedCount ?? 0,
      diskEvicted: disk?.evictedCount ?? 0,
      diskRejected: disk?.rejectedCount ?? 0,
    },
    timeToFirstToken: structuredClone(metrics.timeToFirstToken),
    interToken: structuredClone(metrics.interToken),
    kvBytes: {
      slots: slots.reduce((sum, slot) => sum + slot.kv.bytes, 0),
      checkpoints: pool.bytes,
      checkpointLimit: pool.limitBytes,
      disk: disk?.bytes ?? 0,
      diskLimit: disk?.limitBytes ?? 0,
    },
    checkpointCount: pool.count,
    diskCount: disk?.count ?? 0,
  };
}
