// How long to wait before a request is tried again.
import { CancelledError } from "../core/errors.ts";

const FIRST_PAUSE_MS = 1000;
const MAX_PAUSE_MS = 60_000;
/** A server may ask for more patience than this, but not get it. */
const MAX_RETRY_AFTER_MS = 300_000;

/** Milliseconds to wait after so many failures in a row, or as the server asks. */
export function pauseAfter(failures: number, retryAfterSeconds: number | undefined): number {
  if (retryAfterSeconds !== undefined) return Math.min(retryAfterSeconds * 1000, MAX_RETRY_AFTER_MS);
  // Spread, so that many who lost the same server do not return together.
  return Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), MAX_PAUSE_MS) * (1 + Math.random() / 4);
}

/** Waits. Throws `cancelled` as soon as the signal says so. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer);
      reject(new CancelledError());
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    if (signal?.aborted) onAbort();
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
