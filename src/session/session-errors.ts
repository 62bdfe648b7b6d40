// Errors that carry numbers beside their code, so that callers can act on them without reading the text.
import { Ds4Error } from "../core/errors.ts";

/** The tokens do not fit into the session's context. Nothing was evaluated. */
export class ContextFullError extends Ds4Error {
  /** Tokens already evaluated and kept. */
  readonly usedTokens: number;
  /** Tokens that were to be added. */
  readonly addedTokens: number;
  readonly capacityTokens: number;
  /** What to do, in words; the end of the message. */
  readonly hint: string;

  constructor(
    usedTokens: number,
    addedTokens: number,
    capacityTokens: number,
    hint = "use a larger context",
  ) {
    super(
      "context-full",
      `the context holds ${capacityTokens} tokens: ${usedTokens} are in use and ${addedTokens} more do not fit; ${hint}`,
    );
    this.usedTokens = usedTokens;
    this.addedTokens = addedTokens;
    this.capacityTokens = capacityTokens;
    this.hint = hint;
  }
}

/** The engine's worker thread ended while work was pending. Open a new engine. */
export class EngineCrashedError extends Ds4Error {
  constructor(reason: string, options?: ErrorOptions) {
    super("session", `the engine stopped: ${reason}`, options);
  }
}
