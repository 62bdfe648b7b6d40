// Writes an answer while it is generated: content to stdout, thinking dimmed (to stdout in a chat on a terminal,
// else to stderr, so that a redirected stdout holds the answer alone).
import type { Writable } from "node:stream";
import type { GenerateEvent } from "../session/generate.ts";
import { type Terminal, useColor } from "./terminal.ts";

/** Prints the text of one answer. */
export class AnswerPrinter {
  /** The answer's text so far, by channel. */
  readonly text = { thinking: "", content: "" };
  readonly #out: Writable;
  readonly #thinkingOut: (Writable & { isTTY?: boolean }) | undefined;
  #thinkingOpen = false;

  constructor(terminal: Terminal, thinkingOnStdout: boolean) {
    this.#out = terminal.out;
    if (thinkingOnStdout) this.#thinkingOut = terminal.out;
    else this.#thinkingOut = terminal.quiet ? undefined : terminal.err;
  }

  take(event: GenerateEvent): void {
    if (event.kind === "prompt" || event.text === "") return;
    this.text[event.channel] += event.text;
    if (event.channel === "thinking") this.#thinking(event.text);
    else {
      this.#closeThinking();
      this.#out.write(event.text);
    }
  }

  /** Ends the line, if there was any text. */
  finish(): void {
    this.#closeThinking();
    if (this.text.content !== "" && !this.text.content.endsWith("\n")) this.#out.write("\n");
  }

  #thinking(text: string): void {
    const out = this.#thinkingOut;
    if (out === undefined) return;
    if (!this.#thinkingOpen && useColor(out)) out.write("\x1b[2m");
    this.#thinkingOpen = true;
    out.write(text);
  }

  #closeThinking(): void {
    if (!this.#thinkingOpen) return;
    this.#thinkingOpen = false;
    const out = this.#thinkingOut!;
    out.write(useColor(out) ? "\x1b[22m\n" : "\n");
  }
}
