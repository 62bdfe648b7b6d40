// Whether a plan fits a machine, pool by pool, and the refusal when it does not.
import { MemoryError } from "../core/errors.ts";
import { formatBytes } from "../core/units.ts";
import { findPool, type Machine } from "../machine/machine.ts";
import { type MemoryPlan, regionBytes } from "./memory-plan.ts";
import type { Remedy } from "./remedies.ts";

/** `tight`: it fits, but less than the reserve stays free. */
export type Verdict = "fits" | "tight" | "refused";

/** One pool's figures. */
export interface PoolFit {
  pool: string;
  /** Everything that the plan puts there; the reserve is not part of it. */
  needBytes: number;
  availableBytes: number;
  totalBytes: number;
  /** What is left of the available memory; negative when it does not fit. */
  marginBytes: number;
  reserveBytes: number;
  /** What sets `availableBytes` below the machine's own, or null. */
  limitedBy: string | null;
}

/** The verdict of the worst pool, and all pools that the plan uses. */
export interface Fit {
  verdict: Verdict;
  pools: PoolFit[];
}

/** Classes named in a refusal. */
const MOST_NAMED_CLASSES = 4;

/** Compares need with what is available. Pure. */
export function checkFits(plan: MemoryPlan, machine: Machine): Fit {
  const ids = [...new Set(plan.regions.map((region) => region.pool))];
  const pools = ids.map((id) => poolFit(plan, machine, id));
  const verdicts: readonly Verdict[] = ["refused", "tight", "fits"];
  const verdict = verdicts.find((each) => pools.some((pool) => poolVerdict(pool) === each)) ?? "fits";
  return { verdict, pools };
}

/** The verdict of one pool. */
export function poolVerdict({ marginBytes, reserveBytes }: PoolFit): Verdict {
  if (marginBytes < 0) return "refused";
  return marginBytes < reserveBytes ? "tight" : "fits";
}

function poolFit(plan: MemoryPlan, machine: Machine, id: string): PoolFit {
  const pool = findPool(machine, id);
  const needBytes = regionBytes(plan, (region) => region.pool === id);
  const reserve = plan.regions.find((region) => region.owner === "reserve" && region.pool === id);
  const availableBytes = pool?.availableBytes ?? 0;
  const limit = pool?.limits.toSorted((a, b) => a.availableBytes - b.availableBytes)[0];
  return {
    pool: id,
    needBytes,
    availableBytes,
    totalBytes: pool?.totalBytes ?? 0,
    marginBytes: availableBytes - needBytes,
    reserveBytes: reserve?.bytes ?? 0,
    limitedBy: limit !== undefined && limit.availableBytes <= availableBytes ? limit.source : null,
  };
}

/** One line about a plan that fits with less than the reserve to spare. */
export function tightWarning(plan: MemoryPlan, fit: Fit): string {
  const tight = fit.pools.find((pool) => poolVerdict(pool) === "tight") ?? fit.pools[0];
  return (
    `${plan.name} fits with only ${formatBytes(tight.marginBytes)} of ${tight.pool} memory to spare; ` +
    `${formatBytes(tight.reserveBytes)} should stay free, other programs may be killed`
  );
}

/** The refusal: need, have, what takes most, and what would fit. */
export function refusal(plan: MemoryPlan, fit: Fit, remedies: readonly Remedy[]): MemoryError {
  const short = fit.pools.find((pool) => poolVerdict(pool) === "refused") ?? fit.pools[0];
  const { needBytes, availableBytes, pool, limitedBy } = short;
  const { ctxTokens, slots } = plan.options;
  const run = `context ${ctxTokens}${slots > 1 ? ` in ${slots} slots` : ""}`;
  const limit = limitedBy === null ? "" : ` (limited by ${limitedBy})`;
  const lines = [
    `${plan.name} does not fit with ${run}: it needs ${formatBytes(needBytes)} of ${pool} memory, ` +
      `${formatBytes(availableBytes)} can be had${limit}, ${formatBytes(needBytes - availableBytes)} too little`,
    `  largest: ${largestClasses(plan, pool).join(", ")}`,
    remedies.length === 0 ? "  no smaller run would fit here" : "  what would fit:",
    ...remedies.map((remedy) => `    ${remedy.text}`),
  ];
  return new MemoryError(lines.join("\n"), needBytes, availableBytes);
}

function largestClasses(plan: MemoryPlan, pool: string): string[] {
  return plan.regions
    .filter((region) => region.pool === pool && region.owner !== "reserve")
    .sort((a, b) => b.bytes - a.bytes)
    .slice(0, MOST_NAMED_CLASSES)
    .map(({ label, bytes }) => `${label} ${formatBytes(bytes)}`);
}
