// The wording that asks for more thinking. It stands before everything else, so changing the effort changes the
// whole prompt prefix; the two releases use the same texts one step apart.
import type { Checkpoint, Thinking } from "./conversation.ts";

const ABSOLUTE =
  "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n" +
  "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, " +
  "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n" +
  "Explicitly write out your entire deliberation process, documenting every intermediate step, considered " +
  "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";

const BEYOND =
  "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n" +
  "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the " +
  "problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying " +
  "cause rather than any surface symptom.\n" +
  "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain " +
  "that no assumption remains unchecked and no error remains undiscovered.\n\n";

const TEXTS: Record<Checkpoint, Record<Thinking, string>> = {
  preview: { off: "", low: "", on: "", max: ABSOLUTE },
  "0731": { off: "", low: "", on: ABSOLUTE, max: BEYOND },
};

/** Text that goes right after the begin token; empty for most settings. */
export function effortText(checkpoint: Checkpoint, thinking: Thinking): string {
  return TEXTS[checkpoint][thinking];
}
