// A conversation as token ids that only grow: a head (begin token, effort text, system text) and turns. Turns keep
// the tokens the model sampled, never its text tokenized again, so that the KV state stays valid. Earlier reasoning
// stays in the timeline too: dropping it, as the official encoder does without tools, would evaluate the
// whole last answer again.
import type { Checkpoint, Message, Thinking } from "../template/conversation.ts";
import { encodePieces, type PromptPiece } from "../template/pieces.ts";
import { renderConversation } from "../template/render.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { SPECIAL_TEXT } from "../tokenizer/tokenizer-tables.ts";

/** Builds the parts of a chat's timeline. */
export class ChatPrompt {
  readonly #tokenizer: Tokenizer;
  readonly #system: string | undefined;
  readonly #checkpoint: Checkpoint;

  constructor(tokenizer: Tokenizer, system: string | undefined, checkpoint: Checkpoint) {
    this.#tokenizer = tokenizer;
    this.#system = system;
    this.#checkpoint = checkpoint;
  }

  /** Everything before the first turn. It depends on the thinking mode, as the effort text stands there. */
  head(thinking: Thinking): Int32Array {
    const { pieces, turnStart } = this.#render("", thinking);
    return encodePieces(this.#tokenizer, pieces.slice(0, turnStart));
  }

  /** A user turn and the start of the answer. Marks in `text` stay plain text. */
  turn(text: string, thinking: Thinking): Int32Array {
    const { pieces, turnStart } = this.#render(text, thinking);
    return encodePieces(this.#tokenizer, pieces.slice(turnStart));
  }

  /** What ends an answer that may have been cut inside its thinking. */
  closing(insideThinking: boolean): number[] {
    const close = insideThinking ? this.#tokenizer.specialId(SPECIAL_TEXT.thinkEnd) : undefined;
    return close === undefined ? [this.#tokenizer.eosId] : [close, this.#tokenizer.eosId];
  }

  #render(text: string, thinking: Thinking): { pieces: PromptPiece[]; turnStart: number } {
    const messages: Message[] = [{ role: "user", content: text }];
    if (this.#system !== undefined) messages.unshift({ role: "system", content: this.#system });
    const pieces = renderConversation({ messages, thinking, checkpoint: this.#checkpoint });
    const turnStart = pieces.findIndex(
      (piece) => piece.kind === "special" && piece.text === SPECIAL_TEXT.user,
    );
    return { pieces, turnStart };
  }
}
