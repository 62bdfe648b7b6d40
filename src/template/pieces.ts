// A prompt as pieces: text, which is tokenized without special tokens, and special tokens, which only template code
// makes. This is what keeps text from people from ever acting as a mark.

import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { SPECIAL_TEXT } from "../tokenizer/tokenizer-tables.ts";
import { TemplateError } from "./template-error.ts";

/** A stretch of text, one special token, named by its text in the vocabulary, or tokens that the model once sampled. */
export type PromptPiece =
  | { kind: "text"; text: string }
  | { kind: "special"; text: string }
  | { kind: "tokens"; text: string; ids: Int32Array };

/** Marks that occur inside the template's own wording. */
const MARKS = [SPECIAL_TEXT.dsml, SPECIAL_TEXT.thinkStart, SPECIAL_TEXT.thinkEnd];
const MARK_PATTERN = new RegExp(`(${MARKS.join("|")})`);

/** Collects pieces. Adjacent texts are joined, so that BPE sees the same text as it does in the official encoder. */
export class PieceBuilder {
  private readonly pieces: PromptPiece[] = [];
  private pending: string[] = [];

  /** Text from anywhere: marks in it stay plain text. */
  text(text: string): this {
    if (text !== "") this.pending.push(text);
    return this;
  }

  /** One special token. */
  special(text: string): this {
    this.flush();
    this.pieces.push({ kind: "special", text });
    return this;
  }

  /** What the model sampled, token by token; `text` is what the ids decode to. */
  tokens(ids: Int32Array, text: string): this {
    this.flush();
    this.pieces.push({ kind: "tokens", ids, text });
    return this;
  }

  /** The pieces so far; undefined while they end in text, which what follows could join. */
  boundary(): readonly PromptPiece[] | undefined {
    return this.pending.length === 0 ? this.pieces : undefined;
  }

  /** The template's own wording: think and DSML marks in it are special tokens. Never for text from people. */
  wording(text: string): this {
    for (const part of text.split(MARK_PATTERN)) {
      if ((MARKS as string[]).includes(part)) this.special(part);
      else this.text(part);
    }
    return this;
  }

  /** The pieces so far; the builder is spent. */
  finish(): PromptPiece[] {
    this.flush();
    return this.pieces;
  }

  private flush(): void {
    if (this.pending.length === 0) return;
    this.pieces.push({ kind: "text", text: this.pending.join("") });
    this.pending = [];
  }
}

/** The prompt as one string, as the official encoder would return it. For people and tests: it loses the difference
 * between a mark and text that looks like one. */
export function piecesToText(pieces: readonly PromptPiece[]): string {
  return pieces.map((piece) => piece.text).join("");
}

/**
 * Token ids of a prompt; fresh memory. Throws `template` if the vocabulary lacks a special token, and returns no
 * special id that the pieces do not name.
 */
export function encodePieces(tokenizer: Tokenizer, pieces: readonly PromptPiece[]): Int32Array {
  const parts = pieces.map((piece) => {
    if (piece.kind === "text") return tokenizer.encode(piece.text);
    if (piece.kind === "tokens") return piece.ids;
    const id = tokenizer.specialId(piece.text);
    if (id === undefined)
      throw new TemplateError(
        `the prompt needs the special token ${piece.text}, which this model's vocabulary lacks`,
      );
    return Int32Array.of(id);
  });
  const ids = new Int32Array(parts.reduce((count, part) => count + part.length, 0));
  let at = 0;
  for (const part of parts) {
    ids.set(part, at);
    at += part.length;
  }
  return ids;
}
