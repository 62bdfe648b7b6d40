// Which slot serves a prompt. Pure: looks at timelines only, so that every choice can be tested.
import type { CheckpointPool } from "./checkpoint-pool.ts";
import type { Slot } from "./slot.ts";
import { isPrefix } from "./token-prefix.ts";

/** Going back to a checkpoint copies its state: about this share of the time to read its tokens again. */
export const RESTORE_SHARE = 0.02;
/** After this long without use a timeline is half as likely to be continued. */
const HALF_LIFE_MS = 30 * 60_000;
/** A conversation that sends something else has left its branch; edits are undone now and then. */
const SUPERSEDED_SHARE = 0.25;

/** The free slot whose whole timeline the prompt continues; the longest of them. */
export function continuedSlot(slots: readonly Slot[], prompt: Int32Array): Slot | undefined {
  let best: Slot | undefined;
  for (const slot of slots) {
    if (slot.job !== undefined || slot.lengthTokens <= (best?.lengthTokens ?? 0)) continue;
    // A prompt that adds nothing needs the logits after it.
    if (slot.lengthTokens === prompt.length && slot.logits === undefined) continue;
    if (isPrefix(slot.tokens, prompt)) best = slot;
  }
  return best;
}

/** The free slot whose timeline costs least to lose: empty ones first; undefined when all are busy. */
export function cheapestSlot(
  slots: readonly Slot[],
  pool: CheckpointPool,
  cacheKey: string | undefined,
  nowMs: number,
): Slot | undefined {
  let best: Slot | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const slot of slots) {
    if (slot.job !== undefined) continue;
    const cost = lossOf(slot, pool, cacheKey, nowMs);
    if (cost > least || (cost === least && slot.lastUsedMs >= best!.lastUsedMs)) continue;
    least = cost;
    best = slot;
  }
  return best;
}

/** Tokens to read again if the timeline is lost and wanted, by how likely that is. */
function lossOf(slot: Slot, pool: CheckpointPool, cacheKey: string | undefined, nowMs: number): number {
  const length = slot.lengthTokens;
  if (length === 0) return 0;
  const covered = pool.longestPrefix(slot.tokens)?.tokens.length ?? 0;
  const recency = 0.5 ** ((nowMs - slot.lastUsedMs) / HALF_LIFE_MS);
  const superseded = cacheKey !== undefined && cacheKey === slot.cacheKey ? SUPERSEDED_SHARE : 1;
  return (length - covered + RESTORE_SHARE * covered) * recency * superseded;
}
