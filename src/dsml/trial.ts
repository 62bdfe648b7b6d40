// A block that may turn out to be none: read on the side, its events kept until the verdict.
import { SPECIAL_TEXT } from "../tokenizer/tokenizer-tables.ts";
import { BlockReader } from "./block-reader.ts";
import { findBlockStart } from "./block-start.ts";
import type { CodeTracker } from "./code-tracker.ts";
import type { AnswerEnd, ParseEvent } from "./events.ts";
import { findLiteral, MAX_GAP_UNITS, skipSpace } from "./tags.ts";
import { sampledText, type TextSlice, TextWindow } from "./text-window.ts";
import type { ToolSchema } from "./tool-table.ts";

/**
 * Where the block stands. `thinking` and `code`: only blocks by the book count, and only if the answer ends with them
 * before the thinking or the code is closed. `loose`: the block is spelled in another way than the template's; it
 * counts once it is whole.
 */
export type TrialPlace = "thinking" | "code" | "loose";

/** Undecided, accepted, or refuted: `text` was no block, and `rest` is to be looked at again. */
export type Verdict = "open" | "accepted" | { text: string; rest: TextSlice };

/** Reads one block, or with `thinking` and `code` several in a row, on trial. */
export class Trial {
  readonly place: TrialPlace;
  /** The events of an accepted block. */
  events: ParseEvent[] = [];
  /** Index that the next call would get. */
  nextIndex: number;
  readonly #window = new TextWindow();
  readonly #tools: ReadonlyMap<string, ToolSchema>;
  readonly #code: CodeTracker | undefined;
  /** The block being read; undefined before the first and between blocks. */
  #reader: BlockReader | undefined;
  /** Text of the blocks read to their end. */
  #blocks = "";

  /** For `code`, `code` is the state of the code where the trial's text begins; it is used up. */
  constructor(
    place: TrialPlace,
    tools: ReadonlyMap<string, ToolSchema>,
    firstIndex: number,
    code?: CodeTracker,
  ) {
    this.place = place;
    this.#tools = tools;
    this.nextIndex = firstIndex;
    this.#code = code;
  }

  /** Takes what is new in `source`, which first is the white space before the block and the block. */
  feed(source: TextWindow): Verdict {
    const { at, found: closed } = this.#findEndOfPlace(source);
    this.#window.append(source.takeSlice(at));
    for (;;) {
      const verdict = this.#reader === undefined ? this.#startBlock() : this.#readBlock(this.#reader);
      if (verdict === "again") continue;
      // Thinking or code that is closed behind the block: it was only quoted.
      return verdict === "open" && closed ? this.#refute() : verdict;
    }
  }

  /** Decides at the end of the answer: `accepted`, or the text that was no block. */
  finish(source: TextWindow, end: AnswerEnd): "accepted" | { text: string } {
    this.#window.append(source.takeSlice());
    if (this.place === "loose" && this.#reader !== undefined) {
      this.#reader.finish(end);
      this.nextIndex = this.#reader.nextIndex;
      return "accepted";
    }
    const { text, at } = this.#window;
    const endsWithBlock = this.#reader === undefined && this.#blocks !== "";
    if (!endsWithBlock || end !== "stop" || skipSpace(text, at) < text.length)
      return { text: this.#consumed() + this.#window.take() };
    const note = `recovered from unclosed ${this.place}`;
    this.events = this.events.map((event) =>
      event.type === "toolCallEnd" ? { ...event, notes: [...event.notes, note] } : event,
    );
    if (at < text.length) this.events.push({ type: "markup", ...sampledText(this.#window.takeSlice()) });
    return "accepted";
  }

  /** Text not yet put out that belonged to a block whose part is over; the window keeps what follows it. */
  takeRest(): TextSlice {
    return this.#window.takeSlice();
  }

  #findEndOfPlace(source: TextWindow): { found: boolean; at: number } {
    if (this.place === "thinking") {
      const mark = SPECIAL_TEXT.thinkEnd;
      return findLiteral(source, mark, source.at, [0, mark.length]);
    }
    const { text } = source;
    const at = this.#code?.advanceInCode(text, source.at) ?? text.length;
    return { found: at < text.length, at };
  }

  #startBlock(): Verdict | "again" {
    const window = this.#window;
    const at = skipSpace(window.text, window.at);
    if (at - window.at > MAX_GAP_UNITS) return this.#refute();
    if (at === window.text.length) return "open";
    const start = window.text[at] === "<" ? findBlockStart(window, at, this.#tools) : undefined;
    if (start === "partial") return "open";
    const isLoose = this.place === "loose";
    if (start?.kind !== "block" || (!start.exact && !isLoose)) return this.#refute();
    this.#reader = new BlockReader(window, start.block, {
      tools: this.#tools,
      rule: isLoose ? "refute" : "strict",
      firstIndex: this.nextIndex,
      emit: (event) => this.events.push(event),
    });
    return "again";
  }

  #readBlock(reader: BlockReader): Verdict | "again" {
    const result = reader.read();
    if (result === "more") return "open";
    if (result === "refuted") return this.#refute();
    this.#blocks += reader.consumed;
    this.nextIndex = reader.nextIndex;
    this.#reader = undefined;
    return this.place === "loose" ? "accepted" : "again";
  }

  #consumed(): string {
    return this.#blocks + (this.#reader?.consumed ?? "");
  }

  #refute(): Verdict {
    let text = this.#consumed();
    // Nothing was read: pass over the bracket at least, or the same trial would begin again.
    if (text === "") text = this.#window.take(this.#window.text.indexOf("<", this.#window.at) + 1);
    return { text, rest: this.#window.takeSlice() };
  }
}
