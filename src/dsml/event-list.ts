// Events of one push, with adjacent deltas joined so that a long text of tiny steps stays one event.
import type { ParseEvent } from "./events.ts";
import { sampledText, type TextSlice } from "./text-window.ts";

/** A growing list of events. */
export class EventList {
  #events: ParseEvent[] = [];

  /** Appends an event; a delta that continues the last event is joined to it. */
  add(event: ParseEvent): void {
    const last = this.#events.at(-1);
    if (event.type === "reasoning" || event.type === "content") this.text(event.type, event.text);
    else if (
      event.type === "toolCallArguments" &&
      last?.type === "toolCallArguments" &&
      last.index === event.index
    )
      last.delta += event.delta;
    else this.#events.push({ ...event });
  }

  /** Appends text of a channel. */
  text(type: "reasoning" | "content", text: string): void {
    const last = this.#events.at(-1);
    if (last?.type === type) last.text += text;
    else this.#events.push({ type, text });
  }

  /** Appends markup. */
  markup(slice: TextSlice): void {
    this.#events.push({ type: "markup", ...sampledText(slice) });
  }

  /** The events so far; the list is then empty. */
  take(): ParseEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }
}
