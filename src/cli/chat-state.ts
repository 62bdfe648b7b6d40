// One chat: its token timeline, its messages as text, and how a turn is answered. Knows no input handling.

import type { FinishEvent } from "../session/generate.ts";
import type { SessionEngine } from "../session/session-engine.ts";
import type { Thinking } from "../template/conversation.ts";
import { AnswerPrinter } from "./answer-printer.ts";
import type { RunContext } from "./run-context.ts";
import { thinkingOf } from "./run-options.ts";
import { summaryLine } from "./summary.ts";
import { dim, note } from "./terminal.ts";

/** A message as text, for saving. */
export interface ChatMessage {
  role: "system" | "user" | "assistant";
  content: string;
  reasoning?: string;
}

/** The state of a chat. */
export class Chat {
  readonly context: RunContext;
  readonly engine: SessionEngine;
  readonly messages: ChatMessage[] = [];
  thinking: Thinking;
  /** Tokens of all turns so far, without the head. Sampled tokens stay as they were sampled. */
  #turns: number[] = [];

  constructor(context: RunContext, engine: SessionEngine) {
    this.context = context;
    this.engine = engine;
    this.thinking = thinkingOf(context.flags);
    const { system } = context.flags;
    if (system !== undefined) this.messages.push({ role: "system", content: system });
  }

  /**
   * Answers a user turn and appends both. An interrupted answer stays in the timeline as far as it got; a turn that
   * fails leaves the chat as it was. Throws what generating throws.
   */
  async answer(text: string, thinkingOnStdout: boolean, signal: AbortSignal): Promise<void> {
    const { context, engine, thinking } = this;
    const { terminal, bar, prompt } = context;
    const turn = context.isRaw
      ? context.model.tokenizer.encode(text, { allowSpecial: true })
      : prompt.turn(text, thinking);
    const head = context.isRaw ? [] : prompt.head(thinking);
    const promptTokens = Int32Array.from([...head, ...this.#turns, ...turn]);
    const printer = new AnswerPrinter(terminal, thinkingOnStdout);
    const sampled: number[] = [];
    let finish: FinishEvent | undefined;
    const request = context.request(promptTokens, thinking);
    for await (const event of engine.generate(request, { signal, onProgress: bar.listener })) {
      bar.clear();
      printer.take(event);
      if (event.kind === "token") sampled.push(event.tokenId);
      if (event.kind === "finish") finish = event;
    }
    printer.finish();
    const insideThinking = !context.isRaw && finish!.channel === "thinking";
    const closing = context.isRaw ? [] : prompt.closing(insideThinking);
    // One by one: spreading a long answer into `push` would overflow the stack.
    for (const token of [...turn, ...sampled, ...closing]) this.#turns.push(token);
    this.messages.push({ role: "user", content: text });
    const reasoning = printer.text.thinking || undefined;
    this.messages.push({ role: "assistant", content: printer.text.content, reasoning });
    this.#report(finish!, summaryLine(finish!, await engine.stats()));
  }

  #report(finish: FinishEvent, summary: string): void {
    const { terminal } = this.context;
    if (finish.finishReason === "cancelled") note(terminal, dim("[stopped]", terminal.err));
    if (finish.finishReason === "length")
      note(terminal, dim("[cut: token limit or end of the context]", terminal.err));
    note(terminal, dim(summary, terminal.err));
  }
}
