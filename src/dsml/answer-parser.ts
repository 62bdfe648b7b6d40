// Splits the text of a model's answer into thinking, content and tool calls while it is being sampled.
import { Ds4Error } from "../core/errors.ts";
import { SPECIAL_TEXT } from "../tokenizer/tokenizer-tables.ts";
import { BlockReader } from "./block-reader.ts";
import { type BlockStart, findBlockStart } from "./block-start.ts";
import { CodeTracker } from "./code-tracker.ts";
import { EventList } from "./event-list.ts";
import type { AnswerEnd, AnswerParserOptions, MarkRange, ParseEvent } from "./events.ts";
import { isSpace, nextOpening, skipSpace } from "./tags.ts";
import { originsOf, sampledText, TextWindow } from "./text-window.ts";
import { type ToolSchema, toolTable } from "./tool-table.ts";
import { Trial, type TrialPlace } from "./trial.ts";

/** White space right before a block or tag that belongs to it and not to the text, at most, in UTF-16 units. */
export const MAX_SEPARATOR_UNITS = 16;
/** Text is worked on in pieces of this many UTF-16 units: what is looked at twice stays short, the whole linear. */
const PIECE_UNITS = 2048;

const THINK_TAGS = [
  { text: SPECIAL_TEXT.thinkStart, opens: true },
  { text: SPECIAL_TEXT.thinkEnd, opens: false },
];
/** A tag with the template's mark has begun. */
const BEGUN_TAG = new RegExp(`^</?${SPECIAL_TEXT.dsml}`);

/**
 * Parser of one answer. The events of a parse do not depend on how the text was split, except for where deltas are
 * cut. Rules where the text leaves a choice:
 *
 * - **Spelling.** `<｜DSML｜tool_calls>` … as in the template is *by the book*; such a block is a call wherever it
 *   stands in content, outside code. Other spellings (no mark, ASCII bars, a bar missing or doubled, curly or single
 *   quotes) are *loose*: they must name a known tool and count only once they are whole, with every required
 *   parameter; else they are content. A block's own tag may be missing if its first call names a known tool and, if
 *   loose, starts a line. Inside a block any spelling of
 *   a tag is read, but a value is ended only by the closing tag in the spelling of its opening one.
 * - **Mentions.** In code fences and code spans, tags are content. So is an opening tag that no tag follows, and, where
 *   `marks` are given, the DSML mark spelled by ordinary tokens, everywhere.
 * - **Recovery.** Blocks by the book inside thinking or code that is not closed until the model stops, with nothing but
 *   white space behind them, are calls: the model forgot to close. Followed by anything else, they were quoted.
 * - **Unknown tools** are never started: `malformedCall` by the book, content if loose.
 * - **Damage** (a nameless tag, text between tags, a parameter given twice) makes the call malformed and with it the
 *   rest of its block. Parameters missing or not in the schema are the tool's business.
 * - **Repair**, only when the model stopped by itself or went on with another call: all that is missing is closing tags
 *   behind a last closed parameter, and no required parameter is missing.
 * - Thinking that is never closed is thinking. A second `<think>` or `</think>` counts if it is a special token or
 *   if nothing visible came before it.
 */
export interface AnswerParser {
  /**
   * Takes sampled text and returns what it made certain. `marks` says which characters came from special tokens;
   * leave it out only if that is not known. Throws `session` after `finish`.
   */
  push(text: string, marks?: readonly MarkRange[]): ParseEvent[];
  /** Ends the answer: what was held back comes out, as text, as a repaired or as a malformed call. */
  finish(end: AnswerEnd): ParseEvent[];
}

/** Makes a parser for one answer. */
export function createAnswerParser(options: AnswerParserOptions): AnswerParser {
  return new StreamingAnswerParser(options);
}

type Channel = "reasoning" | "content";

class StreamingAnswerParser implements AnswerParser {
  readonly #tools: ReadonlyMap<string, ToolSchema>;
  readonly #window = new TextWindow();
  readonly #events = new EventList();
  #channel: Channel;
  #code = new CodeTracker();
  #reader: BlockReader | undefined;
  #trial: Trial | undefined;
  #nextIndex = 0;
  /** Nothing visible came since the beginning, the last think tag or the last block. */
  #isBlank = true;
  /** What came before the blank: only then is white space at the end no content. */
  #blankAfter: "start" | "think" | "block" = "start";
  #highSurrogate = { text: "", origins: "" };
  #finished = false;

  constructor(options: AnswerParserOptions) {
    this.#tools = toolTable(options.tools);
    this.#channel = options.thinking ? "reasoning" : "content";
  }

  push(text: string, marks?: readonly MarkRange[]): ParseEvent[] {
    if (this.#finished)
      throw new Ds4Error("session", "this answer is finished: make a new parser for the next one");
    const origins = this.#highSurrogate.origins + originsOf(text.length, marks);
    let all = this.#highSurrogate.text + text;
    // A surrogate pair cut in two would be escaped as two halves.
    const last = all.charCodeAt(all.length - 1);
    const keep = last >= 0xd800 && last < 0xdc00 ? 1 : 0;
    this.#highSurrogate = { text: all.slice(all.length - keep), origins: origins.slice(all.length - keep) };
    all = all.slice(0, all.length - keep);
    for (let at = 0; at < all.length; ) {
      let end = Math.min(at + PIECE_UNITS, all.length);
      if (end < all.length && all.charCodeAt(end - 1) >= 0xd800 && all.charCodeAt(end - 1) < 0xdc00) end++;
      this.#window.append({ text: all.slice(at, end), origins: origins.slice(at, end) });
      this.#run();
      at = end;
    }
    return this.#events.take();
  }

  finish(end: AnswerEnd): ParseEvent[] {
    if (this.#finished) return [];
    this.#finished = true;
    this.#window.append(this.#highSurrogate);
    this.#run();
    if (this.#reader !== undefined) this.#reader.finish(end);
    else if (this.#trial !== undefined) this.#finishTrial(this.#trial, end);
    else this.#finishText(end);
    return this.#events.take();
  }

  #run(): void {
    for (;;) {
      const goesOn =
        this.#reader !== undefined
          ? this.#runReader(this.#reader)
          : this.#trial !== undefined
            ? this.#runTrial(this.#trial)
            : this.#scan();
      if (!goesOn) return;
    }
  }

  #runReader(reader: BlockReader): boolean {
    if (reader.read() === "more") return false;
    this.#reader = undefined;
    this.#endBlock(reader.nextIndex);
    return true;
  }

  #runTrial(trial: Trial): boolean {
    const verdict = trial.feed(this.#window);
    if (verdict === "open") return false;
    this.#trial = undefined;
    if (verdict === "accepted") {
      this.#window.unshift(trial.takeRest());
      this.#accept(trial);
    } else {
      this.#window.unshift(verdict.rest);
      this.#show(verdict.text);
    }
    return true;
  }

  #accept(trial: Trial): void {
    for (const event of trial.events) this.#events.add(event);
    this.#endBlock(trial.nextIndex);
  }

  #endBlock(nextIndex: number): void {
    this.#nextIndex = nextIndex;
    this.#isBlank = true;
    this.#blankAfter = "block";
    this.#code.advance("\n");
  }

  /** Shows text up to the next tag and begins what the tag begins. Returns whether there is more to do. */
  #scan(): boolean {
    const window = this.#window;
    const { text } = window;
    const found = nextOpening(text, window.at);
    const open = found === -1 ? text.length : found;
    let gap = open;
    while (gap > window.at && open - gap < MAX_SEPARATOR_UNITS && isSpace(text[gap - 1])) gap--;
    this.#show(window.take(gap));
    if (found === -1) return false;
    const think = this.#readThinkTag(open);
    if (think === "done") return true;
    const start = findBlockStart(window, open, this.#tools);
    if (think === "partial" || start === "partial") return false;
    if (start === undefined || !this.#begin(start, text.slice(gap, open))) this.#show(window.take(open + 1));
    return true;
  }

  #readThinkTag(open: number): "done" | "partial" | undefined {
    const window = this.#window;
    const second = window.text[open + 1];
    if (second !== undefined && second !== "t" && second !== "/") return undefined;
    const left = window.text.slice(open, open + SPECIAL_TEXT.thinkEnd.length);
    for (const { text: tag, opens } of THINK_TAGS) {
      const end = Math.min(open + tag.length, window.text.length);
      if (!window.mayBeSpecial(open, end)) continue;
      const closesThinking = this.#channel === "reasoning" && !opens;
      if (!closesThinking && !this.#isBlank && !window.isSpecial(open, end)) continue;
      if (left.startsWith(tag)) {
        if (closesThinking) this.#show(window.take(open));
        this.#events.markup(window.takeSlice(open + tag.length));
        this.#channel = opens ? "reasoning" : "content";
        this.#isBlank = true;
        this.#blankAfter = "think";
        return "done";
      }
      if (tag.startsWith(left)) return "partial";
    }
    return undefined;
  }

  /** Begins a block, or drops a stray tag. Returns false if its tag is only text. */
  #begin(start: BlockStart, separator: string): boolean {
    const window = this.#window;
    const inThinking = this.#channel === "reasoning";
    if (start.kind === "stray-closer") {
      const isLeftOver = !inThinking && this.#isBlank && this.#blankAfter === "block";
      if (isLeftOver) this.#events.markup(window.takeSlice(start.tag.end));
      return isLeftOver;
    }
    if (inThinking) return start.exact && this.#beginTrial("thinking");
    if (this.#code.inCode(separator)) return start.exact && this.#beginTrial("code");
    if (!start.exact) {
      const mayBegin = start.block !== undefined || this.#code.startsLine(separator);
      return mayBegin && this.#beginTrial("loose");
    }
    this.#reader = new BlockReader(window, start.block, {
      tools: this.#tools,
      rule: "report",
      firstIndex: this.#nextIndex,
      emit: (event) => this.#events.add(event),
    });
    return true;
  }

  #beginTrial(place: TrialPlace): true {
    const code = place === "code" ? this.#code.clone() : undefined;
    this.#trial = new Trial(place, this.#tools, this.#nextIndex, code);
    return true;
  }

  #finishTrial(trial: Trial, end: AnswerEnd): void {
    const verdict = trial.finish(this.#window, end);
    if (verdict === "accepted") this.#accept(trial);
    else this.#show(verdict.text);
  }

  /** Puts out what was held back because a tag might have followed. */
  #finishText(end: AnswerEnd): void {
    const slice = this.#window.takeSlice();
    const rest = slice.text;
    if (rest === "") return;
    const at = skipSpace(rest, 0);
    const inContent = this.#channel === "content";
    const isLeftOver = this.#isBlank && this.#blankAfter === "block" && rest.startsWith("</", at);
    const isSeparator = this.#isBlank && this.#blankAfter !== "start" && at === rest.length;
    if (inContent && (isLeftOver || isSeparator)) this.#events.markup(slice);
    else if (inContent && BEGUN_TAG.test(rest.slice(at)) && !this.#code.inCode(rest.slice(0, at))) {
      const reason = end === "stop" ? "unclosed" : "truncated";
      this.#events.add({ type: "malformedCall", index: undefined, reason, ...sampledText(slice) });
    } else this.#show(rest);
  }

  #show(text: string): void {
    if (text === "") return;
    this.#events.text(this.#channel, text);
    if (this.#channel === "content") this.#code.advance(text);
    if (this.#isBlank && skipSpace(text, 0) < text.length) this.#isBlank = false;
  }
}
