import { describe, expect, it } from "vitest";
import { entryValue, superseded, victimsFor } from "./kv-disk-eviction.ts";
import type { DiskEntry } from "./kv-disk-types.ts";

const MIB = 2 ** 20;
const HOUR_MS = 3600_000;
const NOW = 1_000 * HOUR_MS;
let made = 0;

/** An entry whose text is its own unless `text` says otherwise. */
function entry(tokens: number, mib: number, extra: Partial<DiskEntry> & { text?: number } = {}): DiskEntry {
  const { text = ++made, ...rest } = extra;
  return {
    ...{ key: `k${++made}`, tokens: new Int32Array(tokens).fill(text), bytes: mib * MIB },
    ...{ reason: "cold" as const, hits: 0, lastUsedMs: NOW, ...rest },
  };
}

describe("eviction", () => {
  it("a full folder of used states refuses a worse one, without a write (case 107)", () => {
    const kept = [entry(20_000, 300, { hits: 2 }), entry(20_000, 300, { hits: 1 })];
    expect(victimsFor(kept, entry(20_000, 300), 600 * MIB, NOW)).toBeUndefined();
    const better = entry(90_000, 300);
    expect(victimsFor(kept, better, 600 * MIB, NOW)).toEqual([kept[1]]);
    expect(victimsFor([], entry(10, 700), 600 * MIB, NOW)).toBeUndefined();
  });

  it("longer states of one text take the place of shorter unused ones (case 108)", () => {
    let kept: DiskEntry[] = [];
    for (const tokens of [10_000, 20_000, 30_000, 40_000]) {
      const added = entry(tokens, tokens / 100, { text: 7, reason: "continued" });
      const victims = victimsFor(kept, added, 8000 * MIB, NOW)!;
      kept = [...kept.filter((each) => !victims.includes(each)), added];
    }
    expect(kept.map(({ tokens }) => tokens.length)).toEqual([40_000]);
    const used = entry(5_000, 50, { text: 7, hits: 1 });
    expect(superseded([used], kept[0].tokens)).toEqual([]);
  });

  it("explicit saves outrank routine ones (case 109)", () => {
    const explicit = entry(40_000, 600, { reason: "evicted", lastUsedMs: NOW - HOUR_MS });
    const routine = entry(20_000, 300, { reason: "continued" });
    expect(victimsFor([explicit, routine], entry(30_000, 300), 1000 * MIB, NOW)).toEqual([routine]);
  });

  it("a short prefix with many hits outlives a large one-shot chat (case 110)", () => {
    const small = entry(533, 30, { hits: 16, lastUsedMs: NOW - 24 * HOUR_MS });
    const large = entry(91_920, 1230, { hits: 1, lastUsedMs: NOW - 20 * HOUR_MS });
    expect(entryValue(small, NOW)).toBeGreaterThan(entryValue(large, NOW));
    expect(victimsFor([small, large], entry(90_000, 500, { hits: 1 }), 1300 * MIB, NOW)).toEqual([large]);
  });

  it("the prefix of the incoming prompt is pinned (case 111)", () => {
    const pinned = entry(500, 300, { reason: "continued" });
    const other = entry(30_000, 300);
    const added = entry(60_000, 300);
    expect(victimsFor([pinned, other], added, 600 * MIB, NOW)).toEqual([pinned]);
    expect(victimsFor([pinned, other], added, 600 * MIB, NOW, pinned)).toEqual([other]);
  });
});
