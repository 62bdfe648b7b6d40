// Times by the device's own events: of calls on a stream, and of copies, which say how fast its memory is.
import { median } from "../../core/median.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { Handle } from "./driver.ts";
import type { OpenDevice } from "./open-device.ts";
import type { DeviceStream } from "./stream.ts";

/** What is copied must not come out of the second-level cache: with its copy, four times as much. */
const LEAST_BYTES_PER_CACHE = 2;
const CALLS_PER_RUN = 8;

/** How often to measure; `before` is queued ahead of each run, outside the time. */
export interface TimedRuns {
  runs: number;
  /** Runs before those, which are not counted. */
  warmUps: number;
  before?: () => void;
}

/** Milliseconds per call, median over runs of eight calls in a row; `call` gets its number, from 0. Throws `cuda`. */
export function medianCallMs(
  { driver, handle }: DeviceStream,
  call: (turn: number) => void,
  { runs, warmUps, before }: TimedRuns,
): number {
  const events: Handle[] = [];
  const times: number[] = [];
  try {
    for (let i = 0; i < 2; i++) events.push(driver.createEvent());
    const [begin, end] = events;
    for (let run = 0; run < warmUps + runs; run++) {
      before?.();
      driver.recordEvent(begin, handle);
      for (let i = 0; i < CALLS_PER_RUN; i++) call(run * CALLS_PER_RUN + i);
      driver.recordEvent(end, handle);
      driver.synchronizeEvent(end);
      if (run >= warmUps) times.push(driver.elapsedMs(begin, end) / CALLS_PER_RUN);
    }
  } finally {
    for (const event of events) driver.destroyEvent(event);
  }
  return median(times);
}

/**
 * Bytes per second of copies of `from` to `to`, read and written ones counted; 0 when `from` is smaller than two
 * second-level caches. Throws `cuda`.
 */
export function deviceCopyRate({ device, stream }: OpenDevice, from: DeviceBuffer, to: DeviceBuffer): number {
  if (from.bytes < LEAST_BYTES_PER_CACHE * device.l2Bytes) return 0;
  return (2 * from.bytes * 1000) / medianCallMs(stream, () => stream.copy(to, from), { runs: 5, warmUps: 1 });
}
