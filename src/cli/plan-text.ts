// A memory plan as text and as JSON: a row and a bar per region, totals, the verdict.
import { formatBytes } from "../core/units.ts";
import { type PoolFit, poolVerdict, tightWarning } from "../plan/fit.ts";
import { type MemoryPlan, type Region, type RegionOwner, regionBytes } from "../plan/memory-plan.ts";
import type { PlanReport } from "./plan-command.ts";
import { dim, useColor } from "./terminal.ts";

type Stream = { isTTY?: boolean };

const OWNER_LABELS: Readonly<Record<RegionOwner, string>> = {
  weights: "weights",
  kv: "attention state",
  scratch: "scratch",
  staging: "loading",
  runtime: "runtime",
  reserve: "reserve",
};
const OWNERS = Object.keys(OWNER_LABELS) as RegionOwner[];
/** Foreground colours of the bars: blue, green, yellow, magenta, cyan, grey. */
const COLORS: Readonly<Record<RegionOwner, number>> = {
  weights: 34,
  kv: 32,
  scratch: 33,
  staging: 35,
  runtime: 36,
  reserve: 90,
};

const BAR_WIDTH = 32;
const LABEL_WIDTH = 36;
const BYTES_WIDTH = 12;

/** The whole report. Colours only where `stream` is a terminal. */
export function planText(report: PlanReport, stream: Stream): string {
  const { plan, machine, fit } = report;
  const { backend, ctxTokens, slots, batchTokens } = plan.options;
  const many = slots === 1 ? "" : ` in each of ${slots} slots`;
  const lines = [
    `${plan.name} on ${machine.name}`,
    `${backend} backend, context ${ctxTokens}${many}, ${batchTokens} tokens at a time`,
  ];
  const pools = fit.pools;
  for (const pool of pools) lines.push("", ...poolLines(plan, pool, stream));
  if (plan.notLoaded.length > 0) {
    lines.push("", `${plan.notLoaded.length} tensors of the file have no role and are not loaded`);
  }
  lines.push("", ...verdictLines(report));
  return `${lines.join("\n")}\n`;
}

function poolLines(plan: MemoryPlan, pool: PoolFit, stream: Stream): string[] {
  const scaleBytes = Math.max(pool.availableBytes, pool.needBytes);
  const lines = [`${pool.pool} memory`];
  for (const owner of OWNERS) {
    const regions = plan.regions.filter((region) => region.owner === owner && region.pool === pool.pool);
    if (regions.length === 0) continue;
    const bytes = regions.reduce((sum, region) => sum + region.bytes, 0);
    lines.push(row(`  ${OWNER_LABELS[owner]}`, bytes, ownerNote(owner, regions, stream)));
    if (owner === "reserve") continue;
    for (const region of regions)
      lines.push(row(`    ${region.label}`, region.bytes, bar(region, scaleBytes, stream)));
  }
  const limited = pool.limitedBy === null ? "" : `  limited by ${pool.limitedBy}`;
  lines.push(
    row("  need", pool.needBytes, dim("without the reserve", stream)),
    row("  available", pool.availableBytes, limited.trim()),
    row(pool.marginBytes < 0 ? "  missing" : "  left", Math.abs(pool.marginBytes), ""),
  );
  return lines;
}

function ownerNote(owner: RegionOwner, regions: readonly Region[], stream: Stream): string {
  if (owner === "reserve") return dim(regions[0].why, stream);
  if (owner !== "weights") return "";
  const tensors = regions.reduce((sum, region) => sum + (region.tensors?.length ?? 0), 0);
  const fileBytes = regions.reduce((sum, region) => sum + (region.fileBytes ?? 0), 0);
  return dim(`${tensors} tensors, each once; ${fileBytes} bytes in the file`, stream);
}

function row(label: string, bytes: number, rest: string): string {
  return `${label.padEnd(LABEL_WIDTH)}${formatBytes(bytes).padStart(BYTES_WIDTH)}  ${rest}`.trimEnd();
}

/** A bar whose full width is what is available (or needed, where that is more). Anything at all shows one mark. */
function bar({ bytes, owner }: Region, scaleBytes: number, stream: Stream): string {
  const length = Math.max(1, Math.round((bytes / scaleBytes) * BAR_WIDTH));
  if (!useColor(stream)) return "#".repeat(length);
  return `\x1b[${COLORS[owner]}m${"█".repeat(length)}\x1b[39m`;
}

function verdictLines({ plan, fit, machine }: PlanReport): string[] {
  const warnings = machine.warnings.map((warning) => `warning: ${warning}`);
  if (fit.verdict === "tight") return [`tight: ${tightWarning(plan, fit)}`, ...warnings];
  return [fit.verdict === "fits" ? "fits" : "does not fit", ...warnings];
}

/** The same for programs: every region with its tensors' count, figures per pool, remedies with their options. */
export function planJson({ plan, machine, fit, remedies }: PlanReport): string {
  const document = {
    name: plan.name,
    machine: machine.name,
    options: plan.options,
    verdict: fit.verdict,
    needBytes: regionBytes(plan),
    weightFileBytes: plan.regions.reduce((sum, region) => sum + (region.fileBytes ?? 0), 0),
    pools: fit.pools.map((pool) => ({ ...pool, verdict: poolVerdict(pool) })),
    regions: plan.regions.map(({ tensors, ...region }) => ({ ...region, tensorCount: tensors?.length })),
    notLoaded: plan.notLoaded,
    remedies,
    warnings: machine.warnings,
  };
  return JSON.stringify(document, null, 2);
}
