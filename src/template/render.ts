// DeepSeek V4's chat encoding: a conversation to prompt pieces, byte for byte what the vendor's encoder gives. Special
// tokens come from here only, never from the text of messages. Knows no ids and no model.
import { SPECIAL_TEXT } from "../tokenizer/tokenizer-tables.ts";
import type { Conversation, Task } from "./conversation.ts";
import { renderResponseFormat, renderToolCalls, renderTools } from "./dsml-render.ts";
import { effortText } from "./effort-texts.ts";
import { PieceBuilder, type PromptPiece } from "./pieces.ts";
import { TemplateError } from "./template-error.ts";
import { type Turn, type Turns, turnsOf } from "./turns.ts";

const { bos, eos, user, assistant, latestReminder, thinkStart, thinkEnd } = SPECIAL_TEXT;

/**
 * Prompt of `conversation`, with exactly one begin token, at its start. Throws `template` (with the message's index)
 * for what cannot be rendered.
 *
 * Where the official encoder would leave the model without an assistant mark to answer from (a prompt that ends in
 * system text or a reminder), one is added; everything else equals it.
 */
export function renderConversation(conversation: Conversation): PromptPiece[] {
  const { thinking, checkpoint = "preview", addGenerationPrompt = true } = conversation;
  if (!["off", "low", "on", "max"].includes(thinking))
    throw new TemplateError(
      `unknown thinking mode ${JSON.stringify(thinking)}; expected off, low, on or max`,
    );
  if (checkpoint !== "preview" && checkpoint !== "0731")
    throw new TemplateError(`unknown checkpoint ${JSON.stringify(checkpoint)}; expected preview or 0731`);
  const turns = turnsOf(conversation);
  const out = new PieceBuilder().special(bos).text(effortText(checkpoint, thinking));
  const writer = new TurnWriter(out, turns, conversation);
  turns.turns.forEach((turn, index) => {
    writer.write(turn, index);
  });
  if (addGenerationPrompt) writer.openAnswer();
  return out.finish();
}

/** Writes turns in order and keeps track of whether an answer is due. */
class TurnWriter {
  private readonly out: PieceBuilder;
  private readonly turns: Turns;
  private readonly isThinking: boolean;
  private readonly conversation: Conversation;
  /** Index of the user turn that no assistant mark has followed yet. */
  private unanswered: number | undefined;
  private last: "answer due" | "answered" | "other" = "other";

  constructor(out: PieceBuilder, turns: Turns, conversation: Conversation) {
    this.out = out;
    this.turns = turns;
    this.isThinking = conversation.thinking !== "off";
    this.conversation = conversation;
  }

  write(turn: Turn, index: number): void {
    // The mark waits for the assistant's turn, so that system text in between does not lose it.
    if (turn.kind === "assistant" || turn.kind === "reminder") this.markAnswer();
    switch (turn.kind) {
      case "system":
        this.out.text(turn.text);
        this.sections(turn);
        if (this.last === "answered") this.last = "other";
        return;
      case "developer":
        this.out.special(user).text(turn.text);
        this.sections(turn);
        break;
      case "user":
        this.out
          .special(user)
          .text(
            turn.blocks
              .map((block) =>
                block.kind === "result" ? `<tool_result>${block.text}</tool_result>` : block.text,
              )
              .join("\n\n"),
          );
        break;
      case "reminder":
        this.out.special(latestReminder).text(turn.text);
        if (this.last === "answered") this.last = "other";
        return;
      case "assistant":
        this.assistant(turn, index);
        this.last = "answered";
        return;
    }
    this.unanswered = index;
    this.last = "other";
  }

  /** Ends the prompt where the answer starts, unless it ends with an answer. */
  openAnswer(): void {
    if (this.unanswered !== undefined) this.markAnswer();
    else if (this.last === "other")
      this.out.special(assistant).special(this.isThinking ? thinkStart : thinkEnd);
  }

  private sections(turn: Turn & { kind: "system" | "developer" }): void {
    if (turn.tools.length > 0) renderTools(this.out.text("\n\n"), turn.tools, turn.messageIndex);
    if (turn.responseFormat !== undefined)
      renderResponseFormat(this.out.text("\n\n"), turn.responseFormat, turn.messageIndex);
  }

  private markAnswer(): void {
    if (this.unanswered === undefined) return;
    const task = taskOf(this.turns.turns[this.unanswered]);
    const isCurrent = this.turns.keepsReasoning || this.unanswered >= this.turns.lastUserIndex;
    this.unanswered = undefined;
    this.last = "answer due";
    if (task === undefined)
      this.out.special(assistant).special(this.isThinking && isCurrent ? thinkStart : thinkEnd);
    else if (task === "action")
      this.out
        .special(assistant)
        .special(this.isThinking ? thinkStart : thinkEnd)
        .special("<｜action｜>");
    else this.out.special(`<｜${task}｜>`);
  }

  private assistant(turn: Turn & { kind: "assistant" }, index: number): void {
    const { message, text, messageIndex } = turn;
    const reasoning = message.reasoning ?? "";
    if (typeof reasoning !== "string")
      throw new TemplateError(`expected the reasoning to be text, got ${typeof reasoning}`, messageIndex);
    const { replayAnswer, replayCalls } = this.conversation;
    if (!message.openEnded && replayAnswer?.(this.out, message, text)) {
      this.out.special(eos);
      return;
    }
    const answersTask = index > 0 && taskOf(this.turns.turns[index - 1]) !== undefined;
    const keepsReasoning = this.turns.keepsReasoning || index > this.turns.lastUserIndex;
    if (this.isThinking && keepsReasoning && !answersTask) this.out.text(reasoning).special(thinkEnd);
    this.out.text(text);
    const calls = message.toolCalls ?? [];
    if (calls.length > 0 && !replayCalls?.(this.out, calls)) renderToolCalls(this.out, calls, messageIndex);
    if (!message.openEnded) this.out.special(eos);
  }
}

function taskOf(turn: Turn): Task | undefined {
  return turn.kind === "user" || turn.kind === "developer" ? turn.task : undefined;
}
