// The error of a conversation that cannot be rendered.
import { Ds4Error } from "../core/errors.ts";

/** A conversation that cannot be rendered (code `template`). `messageIndex` is 0-based, undefined if no message is at fault. */
export class TemplateError extends Ds4Error {
  readonly messageIndex: number | undefined;

  constructor(message: string, messageIndex?: number, options?: ErrorOptions) {
    super("template", messageIndex === undefined ? message : `message ${messageIndex}: ${message}`, options);
    this.messageIndex = messageIndex;
  }
}
