// Token ids to text, one token at a time, without ever splitting a character: bytes of an unfinished UTF-8 sequence
// are held back until they are complete or known to be broken.
import type { Tokenizer } from "./tokenizer.ts";

/** Options of decoding. */
export interface DecodeOptions {
  /**
   * Leaves out control tokens (begin, end, roles, …). The think and DSML marks stay, as readers of the output need
   * them, whatever type the vocabulary gives them. Default false.
   */
  hideControl?: boolean;
}

/** Stateful decoder of one stream of tokens. */
export class StreamingDetokenizer {
  private readonly tokenizer: Tokenizer;
  private readonly hideControl: boolean;
  // ignoreBOM keeps U+FEFF in the text, which may be part of an answer.
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(tokenizer: Tokenizer, options: DecodeOptions = {}) {
    this.tokenizer = tokenizer;
    this.hideControl = options.hideControl ?? false;
  }

  /** Text that became certain with this token; often empty in the middle of a character. Throws for an unknown id. */
  push(id: number): string {
    const bytes = this.tokenizer.bytesView(id);
    if (!this.tokenizer.isSpecial(id)) return this.decoder.decode(bytes, { stream: true });
    // A special token is a border: no character reaches across it.
    const held = this.end();
    return this.hideControl && this.tokenizer.isHidden(id) ? held : held + this.tokenizer.tokenText(id);
  }

  /** Ends the stream: an unfinished character comes out as one U+FFFD. The detokenizer can then be used again. */
  end(): string {
    return this.decoder.decode();
  }
}
