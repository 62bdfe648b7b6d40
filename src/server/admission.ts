// Who may run and who waits: first come, first served, with a limit. A request whose client leaves while it waits is
// taken out, so nothing is ever computed for it.
import { CancelledError } from "../core/errors.ts";
import { ApiError } from "./api-error.ts";

/** A place in the line. */
export interface Ticket {
  /** Resolves when it is this request's turn; rejects with `cancelled` when its signal aborts first. */
  turn: Promise<void>;
  /** It is this request's turn already. */
  readonly isRunning: boolean;
  /** Gives the place to the next. Twice is harmless. */
  leave(): void;
}

/** A line before a number of counters. */
export class Admission {
  readonly #places: number;
  readonly #maxQueued: number;
  readonly #waiting: { start(): void }[] = [];
  #running = 0;

  constructor(places: number, maxQueued: number) {
    this.#places = places;
    this.#maxQueued = maxQueued;
  }

  get running(): number {
    return this.#running;
  }

  get queued(): number {
    return this.#waiting.length;
  }

  /** Takes a place, which an abort of `signal` gives back. Throws `busy` when too many wait. */
  enter(signal: AbortSignal): Ticket {
    const runsNow = this.#running < this.#places;
    if (!runsNow && this.#waiting.length >= this.#maxQueued) {
      throw new ApiError(
        "busy",
        `the server is busy: ${this.#waiting.length} requests are waiting; try again later`,
      );
    }
    let state: "waiting" | "running" | "left" = "waiting";
    const { promise: turn, resolve, reject } = Promise.withResolvers<void>();
    turn.catch(() => {}); // whoever left does not look at it any more
    const entry = {
      start: () => {
        state = "running";
        this.#running++;
        resolve();
      },
    };
    const leave = () => {
      signal.removeEventListener("abort", onAbort);
      if (state === "running") {
        this.#running--;
        this.#waiting.shift()?.start();
      } else if (state === "waiting") {
        this.#waiting.splice(this.#waiting.indexOf(entry), 1);
        reject(new CancelledError());
      }
      state = "left";
    };
    // Who runs gives the place back when the work has really ended, not when it is asked to end.
    const onAbort = () => {
      if (state === "waiting") leave();
    };
    if (runsNow) entry.start();
    else this.#waiting.push(entry);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    return {
      turn,
      leave,
      get isRunning() {
        return state === "running";
      },
    };
  }
}
