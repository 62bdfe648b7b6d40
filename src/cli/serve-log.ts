// Where the server's log and trace go: lines to stderr, the trace to a file that only its owner can read.
import { closeSync, openSync, writeSync } from "node:fs";
import { UsageError } from "../core/errors.ts";
import type { ServerLog } from "../server/server-log.ts";
import { note, type Terminal } from "./terminal.ts";

/** A log to be closed. */
export type OpenLog = ServerLog & { close(): void };

/** Opens the log. Throws `usage` when the trace cannot be written. */
export function openServeLog(terminal: Terminal, tracePath: string | undefined): OpenLog {
  const line = (text: string) => note(terminal, `${new Date().toISOString()} ${text}`);
  if (tracePath === undefined) return { line, traces: false, trace: () => {}, close: () => {} };
  let file: number;
  try {
    file = openSync(tracePath, "a", 0o600);
  } catch (error) {
    throw new UsageError(`--trace ${tracePath}: ${(error as Error).message}`);
  }
  let isBroken = false;
  const trace = (kind: string, record: object) => {
    if (isBroken) return;
    try {
      writeSync(file, `${JSON.stringify({ time: new Date().toISOString(), kind, ...record })}\n`);
    } catch (error) {
      isBroken = true;
      line(`warning: the trace ends here: ${(error as Error).message}`);
    }
  };
  return { line, traces: true, trace, close: () => closeSync(file) };
}
