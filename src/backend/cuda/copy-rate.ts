// How fast the device's memory is, for shares of it in benchmarks.
import { median } from "../../core/median.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { OpenDevice } from "./open-device.ts";

/** What is copied must not come out of the second-level cache. */
const LEAST_ROOM_PER_CACHE = 4;
const RUNS = 5;
const COPIES_PER_RUN = 8;

/**
 * Bytes per second of copies from one half of `room` to the other, read and written ones counted, median of five runs after
 * one that is not counted; 0 when the room is smaller than four second-level caches. The room's values are lost. Throws `cuda`.
 */
export function deviceCopyRate({ device, stream }: OpenDevice, room: DeviceBuffer): number {
  if (room.bytes < LEAST_ROOM_PER_CACHE * device.l2Bytes) return 0;
  const half = Math.floor(room.bytes / 2);
  const [from, to] = [room.slice(0, half), room.slice(half, half)];
  const { driver, handle } = stream;
  const events: number[] = [];
  const rates: number[] = [];
  try {
    for (let i = 0; i < 2; i++) events.push(driver.createEvent());
    const [begin, end] = events;
    for (let run = 0; run <= RUNS; run++) {
      driver.recordEvent(begin, handle);
      for (let copy = 0; copy < COPIES_PER_RUN; copy++) stream.copy(to, from);
      driver.recordEvent(end, handle);
      driver.synchronizeEvent(end);
      if (run > 0) rates.push((2 * half * COPIES_PER_RUN * 1000) / driver.elapsedMs(begin, end));
    }
  } finally {
    for (const event of events) driver.destroyEvent(event);
  }
  return median(rates);
}
