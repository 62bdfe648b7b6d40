// Counters and histograms of the scheduler.
import type { Histogram, SchedulerCounters } from "./scheduler-types.ts";

const FIRST_TOKEN_BOUNDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600] as const;
const INTER_TOKEN_BOUNDS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5] as const;

/** What a scheduler counts; see the types for meanings. */
export class SchedulerMetrics {
  readonly timeToFirstToken = emptyHistogram(FIRST_TOKEN_BOUNDS);
  readonly interToken = emptyHistogram(INTER_TOKEN_BOUNDS);
  readonly counters: SchedulerCounters = {
    ...{ accepted: 0, refused: 0, finished: 0, cancelled: 0, failed: 0 },
    ...{ promptTokens: 0, reusedTokens: 0, completionTokens: 0, forwardFaults: 0 },
    ...{ decodeSteps: 0, decodeSequences: 0, checkpointsSaved: 0, checkpointsEvicted: 0 },
    ...{ diskSaved: 0, diskEvicted: 0, diskRejected: 0 },
    reuse: { none: 0, slot: 0, checkpoint: 0, disk: 0 },
  };
}

/** Counts `value` in its bucket. */
export function observe(histogram: Histogram, value: number): void {
  const at = histogram.bounds.findIndex((bound) => value <= bound);
  histogram.counts[at === -1 ? histogram.bounds.length : at]++;
  histogram.sum += value;
  histogram.count++;
}

function emptyHistogram(bounds: readonly number[]): Histogram {
  return { bounds, counts: new Array(bounds.length + 1).fill(0), sum: 0, count: 0 };
}
