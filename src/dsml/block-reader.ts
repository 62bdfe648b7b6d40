// Reads one block of calls, from its opening tag (or the first call, where the block's tag was left out) to its end.
import { CallWriter } from "./call-writer.ts";
import type { AnswerEnd, MalformedReason, ParseEvent, SampledText } from "./events.ts";
import { closerOf, findCloser, isExact, readTag, skipSpace, type Tag } from "./tags.ts";
import { sampledText, type TextSlice, type TextWindow } from "./text-window.ts";
import type { ToolSchema } from "./tool-table.ts";

/**
 * What damage means. `report`: it is certainly a call, so it is reported as malformed. `refute`: it was no call after
 * all, also if a required parameter is missing. `strict`: it was none, also for any spelling or repair that is not by
 * the book.
 */
export type DamageRule = "report" | "refute" | "strict";

/** More text is needed, the block has ended, or it was none. */
export type ReadResult = "more" | "done" | "refuted";

type State = "between" | "call" | "value" | "skip";

/** Reader of one block. */
export class BlockReader {
  /** All text consumed. */
  consumed = "";
  /** Index that the next call would get. */
  nextIndex: number;
  readonly #window: TextWindow;
  readonly #tools: ReadonlyMap<string, ToolSchema>;
  readonly #emit: (event: ParseEvent) => void;
  readonly #rule: DamageRule;
  readonly #block: Tag | undefined;
  #state: State = "between";
  /** What was consumed since the last event that carried its text. */
  #raw: TextSlice = { text: "", origins: "" };
  #callCount = 0;
  #call: CallWriter | undefined;
  #invoke: Tag | undefined;
  #parameter: Tag | undefined;
  #damage: MalformedReason | undefined;

  /**
   * The window's cursor must stand at the white space before the block; `block` is its tag, or undefined if the
   * block begins with a call.
   */
  constructor(
    window: TextWindow,
    block: Tag | undefined,
    options: {
      tools: ReadonlyMap<string, ToolSchema>;
      rule: DamageRule;
      firstIndex: number;
      emit: (event: ParseEvent) => void;
    },
  ) {
    this.#window = window;
    this.#block = block;
    this.#tools = options.tools;
    this.#rule = options.rule;
    this.#emit = options.emit;
    this.nextIndex = options.firstIndex;
    if (block !== undefined) this.#consume(block.end);
  }

  /** Consumes what it can. After `refuted` the window's cursor stands at the tag or text that was wrong. */
  read(): ReadResult {
    for (;;) {
      const result =
        this.#state === "value" ? this.#readValue() : this.#state === "skip" ? this.#skip() : this.#readTag();
      if (result !== "again") return result;
    }
  }

  /** Ends the text in the middle of the block. Consumes all that is left. */
  finish(end: AnswerEnd): void {
    const rest = this.#window.text.slice(this.#window.at);
    const closing = rest === "" || rest.startsWith("</");
    if (this.#state === "between" && closing) {
      this.#consume();
      this.#emitMarkup();
      return;
    }
    if (this.#state === "call" && end === "stop" && closing && this.#call!.looksWhole) {
      this.#call!.note("the closing tags were missing");
      this.#endCall();
      this.#consume();
      this.#emitMarkup();
      return;
    }
    this.#consume();
    this.#damage ??= end === "stop" ? "unclosed" : "truncated";
    this.#emitDamage();
  }

  #readTag(): ReadResult | "again" {
    const window = this.#window;
    this.#consume(skipSpace(window.text, window.at));
    if (window.at === window.text.length) return "more";
    const tag = window.text[window.at] === "<" ? readTag(window, window.at) : undefined;
    if (tag === "partial") return "more";
    if (tag === undefined) return this.#fail("unexpected-text");
    if (this.#rule === "strict" && !isExact(tag)) return this.#fail("unexpected-tag");
    return this.#state === "between" ? this.#tagBetweenCalls(tag) : this.#tagInCall(tag);
  }

  #tagBetweenCalls(tag: Tag): ReadResult | "again" {
    if (tag.kind === "invoke" && !tag.closing) return this.#beginCall(tag);
    if (!tag.closing || tag.kind === "parameter") return this.#fail("unexpected-tag");
    if (this.#callCount === 0) return this.#fail("empty-block");
    if (tag.kind === "invoke" && this.#rule === "strict") return this.#fail("unexpected-tag");
    this.#consume(tag.end);
    // One closing tag of a call too many does no harm.
    if (tag.kind === "invoke") return "again";
    this.#emitMarkup();
    return "done";
  }

  #beginCall(tag: Tag): ReadResult | "again" {
    const name = tag.attributes.get("name");
    this.#invoke = tag;
    if (name === undefined || name === "") return this.#fail("no-name");
    const tool = this.#tools.get(name);
    if (tool === undefined && this.#rule === "strict") return this.#fail("unknown-tool");
    this.#consume(tag.end);
    this.#call = new CallWriter(tool, this.nextIndex, this.#emit);
    if (tool !== undefined) this.nextIndex++;
    this.#callCount++;
    this.#state = "call";
    return "again";
  }

  #tagInCall(tag: Tag): ReadResult | "again" {
    if (tag.kind === "invoke" && tag.closing) {
      if (this.#rule === "refute" && this.#call!.missing.length > 0) return "refuted";
      this.#consume(tag.end);
      return this.#endCall();
    }
    if (tag.kind === "parameter") {
      if (tag.closing) return this.#fail("unexpected-tag");
      const name = tag.attributes.get("name");
      if (name === undefined) return this.#fail("no-name");
      if (this.#call!.has(name)) return this.#fail("duplicate-parameter");
      this.#consume(tag.end);
      const flag = tag.attributes.get("string")?.toLowerCase();
      this.#call!.openParameter(name, flag === "true" ? true : flag === "false" ? false : undefined);
      this.#parameter = tag;
      this.#state = "value";
      return "again";
    }
    // The end of the block or the next call: only the closing tag of this one is missing.
    const mayFollow = tag.kind === "invoke" || (tag.closing && this.#block !== undefined);
    if (!mayFollow || this.#rule === "strict" || !this.#call!.looksWhole) return this.#fail("unexpected-tag");
    this.#call!.note("the closing tag was missing");
    return this.#endCall();
  }

  #readValue(): ReadResult | "again" {
    const { found, at } = findCloser(this.#window, this.#parameter!, this.#window.at);
    const text = this.#consume(at);
    if (text !== "") this.#call!.text(text);
    if (!found) return "more";
    this.#consume(at + closerOf(this.#parameter!).length);
    this.#call!.closeParameter();
    this.#state = "call";
    return "again";
  }

  #endCall(): ReadResult | "again" {
    this.#call!.end(this.#takeRaw());
    this.#call = undefined;
    this.#state = "between";
    return this.#block === undefined ? "done" : "again";
  }

  #fail(reason: MalformedReason): ReadResult | "again" {
    if (this.#rule !== "report") return "refuted";
    this.#damage = reason;
    this.#state = "skip";
    return "again";
  }

  /** Passes over the rest of a damaged block: where its next call begins is no longer certain. */
  #skip(): ReadResult {
    const { found, at } = findCloser(this.#window, this.#block ?? this.#invoke!, this.#window.at);
    this.#consume(at);
    if (!found) return "more";
    this.#consume(at + closerOf(this.#block ?? this.#invoke!).length);
    this.#emitDamage();
    return "done";
  }

  #emitDamage(): void {
    this.#emit({
      type: "malformedCall",
      index: this.#call?.index,
      reason: this.#damage!,
      ...this.#takeRaw(),
    });
  }

  #emitMarkup(): void {
    if (this.#raw.text !== "") this.#emit({ type: "markup", ...this.#takeRaw() });
  }

  #takeRaw(): SampledText {
    const sampled = sampledText(this.#raw);
    this.#raw = { text: "", origins: "" };
    return sampled;
  }

  #consume(end?: number): string {
    const { text, origins } = this.#window.takeSlice(end);
    this.#raw.text += text;
    this.#raw.origins += origins;
    this.consumed += text;
    return text;
  }
}
