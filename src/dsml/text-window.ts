// The text not yet consumed, with where each character came from. Consuming moves a cursor, so that many small steps
// on a long text stay linear.
import type { MarkRange, SampledText } from "./events.ts";

const UNKNOWN = "u";
const ORDINARY = "o";
const SPECIAL = "s";

/** Text and the origin of its characters, one letter each. */
export interface TextSlice {
  text: string;
  origins: string;
}

/** A queue of characters. Offsets are absolute in `text`; `at` is the first character not consumed. */
export class TextWindow {
  text = "";
  at = 0;
  #origins = "";

  /** Appends text. */
  append(slice: TextSlice): void {
    this.text = this.text.slice(this.at) + slice.text;
    this.#origins = this.#origins.slice(this.at) + slice.origins;
    this.at = 0;
  }

  /** Puts text back before what is left. */
  unshift(slice: TextSlice): void {
    this.text = slice.text + this.text.slice(this.at);
    this.#origins = slice.origins + this.#origins.slice(this.at);
    this.at = 0;
  }

  /** Consumes up to the absolute offset `end` and returns it. */
  take(end = this.text.length): string {
    const text = this.text.slice(this.at, end);
    this.at = end;
    return text;
  }

  /** Like `take`, with the origins. */
  takeSlice(end = this.text.length): TextSlice {
    const origins = this.#origins.slice(this.at, end);
    return { text: this.take(end), origins };
  }

  /** Whether no character of `[start, end)` is known to come from ordinary tokens. */
  mayBeSpecial(start: number, end: number): boolean {
    for (let at = start; at < end; at++) if (this.#origins[at] === ORDINARY) return false;
    return true;
  }

  /** Whether `[start, end)` is known to come from special tokens. */
  isSpecial(start: number, end: number): boolean {
    for (let at = start; at < end; at++) if (this.#origins[at] !== SPECIAL) return false;
    return true;
  }
}

/** Origins of a text of `length` UTF-16 units; unknown without `marks`. Ranges out of order or bounds are clipped. */
export function originsOf(length: number, marks: readonly MarkRange[] | undefined): string {
  if (marks === undefined) return UNKNOWN.repeat(length);
  let origins = "";
  for (const [start, end] of marks) {
    origins += ORDINARY.repeat(Math.max(0, Math.min(start, length) - origins.length));
    origins += SPECIAL.repeat(Math.max(0, Math.min(end, length) - origins.length));
  }
  return origins + ORDINARY.repeat(Math.max(0, length - origins.length));
}

/** A consumed slice as events carry it. */
export function sampledText({ text, origins }: TextSlice): SampledText {
  if (origins.includes(UNKNOWN)) return { rawText: text, marks: undefined };
  const marks: MarkRange[] = [];
  for (let at = origins.indexOf(SPECIAL); at !== -1; at = origins.indexOf(SPECIAL, at)) {
    const start = at;
    while (origins[at] === SPECIAL) at++;
    marks.push([start, at]);
  }
  return { rawText: text, marks };
}
