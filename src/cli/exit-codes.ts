// The exit codes of the command, and which error gets which.
import { Ds4Error } from "../core/errors.ts";

/** Documented in the README; scripts may rely on them. */
export const EXIT = { ok: 0, failure: 1, usage: 2, memory: 3, interrupted: 130 } as const;

/** The exit code for an error that ends the command. */
export function exitCodeOf(error: unknown): number {
  if (!(error instanceof Ds4Error)) return EXIT.failure;
  if (error.code === "usage") return EXIT.usage;
  if (error.code === "memory") return EXIT.memory;
  if (error.code === "cancelled") return EXIT.interrupted;
  return EXIT.failure;
}
