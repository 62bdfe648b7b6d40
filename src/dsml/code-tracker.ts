// Whether a place in Markdown text lies in a code block or code span: a call written there is quoted, not made.

const BACKTICK = 96;
const TILDE = 126;
const NEWLINE = 10;
const FENCE_LENGTH = 3;

/**
 * Follows text as it is shown. Fences are three or more backticks or tildes first on a line; spans are runs of
 * backticks closed by a run of the same length and end with the line at the latest, so that a stray backtick does
 * no lasting harm.
 */
export class CodeTracker {
  #fenceChar = 0;
  #fenceLength = 0;
  /** The line of the opening fence has not ended. */
  #onFenceLine = false;
  #spanLength = 0;
  #runChar = 0;
  #runLength = 0;
  #runStartsLine = false;
  #lineIsBlank = true;

  /** Takes shown text. */
  advance(text: string): void {
    for (let i = 0; i < text.length; i++) this.#step(text.charCodeAt(i));
  }

  /** Takes text from `from` on as long as it stays in code; returns the offset of the first character outside. */
  advanceInCode(text: string, from: number): number {
    let at = from;
    while (at < text.length) {
      this.#step(text.charCodeAt(at));
      if (this.#fenceLength === 0 && this.#spanLength === 0) return at;
      at++;
    }
    return at;
  }

  /** A tracker that goes its own way from here. */
  clone(): CodeTracker {
    const copy = new CodeTracker();
    copy.#fenceChar = this.#fenceChar;
    copy.#fenceLength = this.#fenceLength;
    copy.#onFenceLine = this.#onFenceLine;
    copy.#spanLength = this.#spanLength;
    copy.#runChar = this.#runChar;
    copy.#runLength = this.#runLength;
    copy.#runStartsLine = this.#runStartsLine;
    copy.#lineIsBlank = this.#lineIsBlank;
    return copy;
  }

  #step(char: number): void {
    if (this.#runLength > 0) {
      if (char === this.#runChar) {
        this.#runLength++;
        return;
      }
      this.#endRun();
    }
    if (char === BACKTICK || char === TILDE) {
      this.#runChar = char;
      this.#runLength = 1;
      this.#runStartsLine = this.#lineIsBlank;
      this.#lineIsBlank = false;
    } else if (char === NEWLINE) this.#endLine();
    else if (char !== 32 && char !== 9 && char !== 13) this.#lineIsBlank = false;
  }

  /** Whether a tag that follows `gap` (white space not yet shown) is quoted as code. */
  inCode(gap: string): boolean {
    this.#endRun();
    return this.#fenceLength > 0 || (this.#spanLength > 0 && !gap.includes("\n"));
  }

  /** Whether a tag that follows `gap` (white space not yet shown) is the first thing on its line. */
  startsLine(gap: string): boolean {
    return this.#lineIsBlank || gap.includes("\n");
  }

  #endLine(): void {
    this.#spanLength = 0;
    this.#lineIsBlank = true;
    this.#onFenceLine = false;
  }

  #endRun(): void {
    const length = this.#runLength;
    if (length === 0) return;
    this.#runLength = 0;
    if (this.#fenceLength > 0) {
      const closes = this.#runStartsLine && this.#runChar === this.#fenceChar && length >= this.#fenceLength;
      // Backticks behind an opening fence on its own line: it was a span after all.
      const wasSpan = this.#onFenceLine && this.#runChar === BACKTICK && this.#fenceChar === BACKTICK;
      if (closes || wasSpan) this.#fenceLength = 0;
    } else if (this.#runStartsLine && length >= FENCE_LENGTH) {
      this.#fenceChar = this.#runChar;
      this.#fenceLength = length;
      this.#onFenceLine = true;
    } else if (this.#runChar === BACKTICK) {
      if (this.#spanLength === 0) this.#spanLength = length;
      else if (this.#spanLength === length) this.#spanLength = 0;
    }
  }
}
