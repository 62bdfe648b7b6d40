// How the calls of an answer were sampled, by their ids: a client sends them back as JSON, and the prompt then holds the
// very tokens that the model produced, so that its cached state still fits.
import { createHash } from "node:crypto";
import type { SampledText } from "../dsml/events.ts";
import { CallReplay, replaySampled } from "../dsml/replay.ts";
import type { ToolCall } from "../template/conversation.ts";
import type { PieceBuilder } from "../template/pieces.ts";

/** Remembers the calls of an answer together: replayed one by one, their block would not be whole. */
export class CallMemory {
  readonly store: CallReplay;
  /** How often something was remembered. */
  changes = 0;

  constructor(store = new CallReplay()) {
    this.store = store;
  }

  /** `ids` are those that the client was given. */
  remember(ids: readonly string[], sampled: SampledText): void {
    this.store.set(callKey(ids), sampled);
    this.changes++;
  }

  /** Writes calls as they were sampled; false if these, in this order, were not one answer's. */
  replay(out: PieceBuilder, calls: readonly ToolCall[]): boolean {
    const ids = calls.map(({ id }) => id ?? "");
    const sampled = ids.includes("") ? undefined : this.store.get(callKey(ids));
    if (sampled === undefined) return false;
    replaySampled(out, sampled);
    return true;
  }
}

/** One key for an answer's call ids, in order; APIs have different prefixes for the same id. */
export function callKey(ids: readonly string[]): string {
  const text = ids.map((id) => id.replace(/^[a-z]+_/, "")).join(" ");
  return createHash("sha256").update(text).digest("base64url");
}
