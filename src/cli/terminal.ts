// Where the command writes: answers to stdout, everything else to stderr; colour only where a person reads it.
import type { Writable } from "node:stream";

/** The streams and what they can show. Tests pass their own. */
export interface Terminal {
  out: Writable & { isTTY?: boolean; columns?: number };
  err: Writable & { isTTY?: boolean; columns?: number };
  /** No warnings, progress or summaries. */
  quiet: boolean;
}

/** The process's own streams. */
export function processTerminal(quiet: boolean): Terminal {
  return { out: process.stdout, err: process.stderr, quiet };
}

/** Whether escape codes may be written to `stream`: a terminal, and NO_COLOR is not set (see no-color.org). */
export function useColor(stream: { isTTY?: boolean }): boolean {
  return stream.isTTY === true && !process.env.NO_COLOR && process.env.TERM !== "dumb";
}

/** Dims a text where the stream shows it. */
export function dim(text: string, stream: { isTTY?: boolean }): string {
  return useColor(stream) ? `\x1b[2m${text}\x1b[22m` : text;
}

/** One line to stderr unless quiet. */
export function note(terminal: Terminal, line: string): void {
  if (!terminal.quiet) terminal.err.write(`${line}\n`);
}
