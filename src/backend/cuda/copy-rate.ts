// How fast the device's memory is, for shares of it in benchmarks.
import { median } from "../../core/median.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { Handle } from "./driver.ts";
import type { OpenDevice } from "./open-device.ts";

/** What is copied must not come out of the second-level cache: with its copy, four times as much. */
const LEAST_BYTES_PER_CACHE = 2;
const RUNS = 5;
const COPIES_PER_RUN = 8;

/**
 * Bytes per second of copies of `from` to `to`, read and written ones counted, median of five runs after one that is not
 * counted; 0 when `from` is smaller than two second-level caches. Throws `cuda`.
 */
export function deviceCopyRate({ device, stream }: OpenDevice, from: DeviceBuffer, to: DeviceBuffer): number {
  if (from.bytes < LEAST_BYTES_PER_CACHE * device.l2Bytes) return 0;
  const { driver, handle } = stream;
  const events: Handle[] = [];
  const rates: number[] = [];
  try {
    for (let i = 0; i < 2; i++) events.push(driver.createEvent());
    const [begin, end] = events;
    for (let run = 0; run <= RUNS; run++) {
      driver.recordEvent(begin, handle);
      for (let copy = 0; copy < COPIES_PER_RUN; copy++) stream.copy(to, from);
      driver.recordEvent(end, handle);
      driver.synchronizeEvent(end);
      if (run > 0) rates.push((2 * from.bytes * COPIES_PER_RUN * 1000) / driver.elapsedMs(begin, end));
    }
  } finally {
    for (const event of events) driver.destroyEvent(event);
  }
  return median(rates);
}
