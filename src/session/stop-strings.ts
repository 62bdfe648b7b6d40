// Finds stop strings in streamed text and cuts exactly before them. Text is released as soon as it cannot be
// the beginning of a stop string. Knows nothing of tokens.
import { Ds4Error } from "../core/errors.ts";

/** Most stop strings of one request: each costs a search per piece of text. OpenAI allows 4. */
export const MAX_STOP_STRINGS = 64;
/** Longest stop string in UTF-16 units: this much text may be held back. */
export const MAX_STOP_STRING_UNITS = 4096;

/** What one piece of text released. `matched` is the stop string found; then nothing more is accepted. */
export interface StopMatch {
  text: string;
  matched: string | undefined;
}

/**
 * Streaming matcher. The first stop string to be COMPLETE wins (on a tie the longest), so the result does not
 * depend on how the text was split.
 */
export class StopMatcher {
  readonly #stops: readonly string[];
  #held = "";
  #done = false;

  /** Throws `request` on an empty, over-long or too many stop strings. */
  constructor(stops: readonly string[]) {
    if (stops.length > MAX_STOP_STRINGS) {
      throw new Ds4Error("request", `stop strings: at most ${MAX_STOP_STRINGS}, got ${stops.length}`);
    }
    for (const stop of stops) {
      if (stop.length === 0 || stop.length > MAX_STOP_STRING_UNITS) {
        throw new Ds4Error(
          "request",
          `stop string: expected 1..${MAX_STOP_STRING_UNITS} characters, got ${stop.length}`,
        );
      }
    }
    this.#stops = stops;
  }

  /** Takes the next piece and returns what is now certain to be output. */
  push(piece: string): StopMatch {
    if (this.#done) return { text: "", matched: undefined };
    const buffer = this.#held + piece;
    let end = Number.POSITIVE_INFINITY;
    let matched: string | undefined;
    for (const stop of this.#stops) {
      const at = buffer.indexOf(stop);
      if (at === -1) continue;
      const stopEnd = at + stop.length;
      if (stopEnd < end || (stopEnd === end && stop.length > matched!.length)) {
        end = stopEnd;
        matched = stop;
      }
    }
    if (matched !== undefined) {
      this.#done = true;
      this.#held = "";
      return { text: buffer.slice(0, end - matched.length), matched };
    }
    const hold = this.#longestOpenSuffix(buffer);
    this.#held = buffer.slice(buffer.length - hold);
    return { text: buffer.slice(0, buffer.length - hold), matched: undefined };
  }

  /** The text still held back; call it when the stream ends without a match. */
  finish(): string {
    const text = this.#held;
    this.#held = "";
    this.#done = true;
    return text;
  }

  /** Length of the longest end of `buffer` that a stop string starts with. */
  #longestOpenSuffix(buffer: string): number {
    let longest = 0;
    for (const stop of this.#stops) {
      for (let length = Math.min(stop.length - 1, buffer.length); length > longest; length--) {
        if (buffer.endsWith(stop.slice(0, length))) {
          longest = length;
          break;
        }
      }
    }
    return longest;
  }
}
