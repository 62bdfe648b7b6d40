// What a saved state is worth, and which ones make room for another. Pure.
import type { DiskEntry, SaveReason } from "./kv-disk-types.ts";
import { isPrefix } from "./token-prefix.ts";

/** People come back to a conversation within days; a shared prefix used yesterday is as good as today. */
const HALF_LIFE_MS = 7 * 24 * 3600_000;
/** Routine saves are soon followed by better ones of the same conversation. */
const REASON_WEIGHT: Readonly<Record<SaveReason, number>> = {
  cold: 1,
  evicted: 1,
  shutdown: 1,
  continued: 0.25,
};

/** Tokens saved per byte, by how likely a use is: every hit counts like another conversation that starts so. */
export function entryValue(entry: Omit<DiskEntry, "key">, nowMs: number): number {
  const { tokens, bytes, hits, reason, lastUsedMs } = entry;
  const recency = 0.5 ** (Math.max(0, nowMs - lastUsedMs) / HALF_LIFE_MS);
  return (tokens.length * (1 + hits) * recency * REASON_WEIGHT[reason]) / bytes;
}

/**
 * Shorter states of the same text that nobody used: `added` takes their place. A state with hits stays, for it begins
 * other conversations too.
 */
export function superseded(
  entries: readonly DiskEntry[],
  added: Int32Array,
  pinned?: DiskEntry,
): DiskEntry[] {
  return entries.filter(
    (entry) =>
      entry !== pinned &&
      entry.hits === 0 &&
      entry.tokens.length < added.length &&
      isPrefix(entry.tokens, added),
  );
}

/**
 * The entries to remove so that `added` fits into `limitBytes`: the least valuable first. Undefined when it cannot fit
 * without removing something worth more: then nothing should be written at all.
 */
export function victimsFor(
  entries: readonly DiskEntry[],
  added: Omit<DiskEntry, "key">,
  limitBytes: number,
  nowMs: number,
  pinned?: DiskEntry,
): DiskEntry[] | undefined {
  if (added.bytes > limitBytes) return undefined;
  const victims = superseded(entries, added.tokens, pinned);
  const kept = entries.filter((entry) => !victims.includes(entry));
  let bytes = added.bytes + kept.reduce((sum, entry) => sum + entry.bytes, 0);
  const value = entryValue(added, nowMs);
  const byValue = kept
    .filter((entry) => entry !== pinned)
    .map((entry) => ({ entry, value: entryValue(entry, nowMs) }))
    .sort((a, b) => a.value - b.value || a.entry.lastUsedMs - b.entry.lastUsedMs);
  for (const candidate of byValue) {
    if (bytes <= limitBytes) break;
    if (candidate.value > value) return undefined;
    victims.push(candidate.entry);
    bytes -= candidate.entry.bytes;
  }
  return bytes <= limitBytes ? victims : undefined;
}
