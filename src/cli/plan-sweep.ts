// Memory over the context: `ds4 plan --sweep ctx`, as a table and as a chart.
import { drawLineChart } from "../bench/line-chart.ts";
import { textTable } from "../core/text-table.ts";
import { formatBytes, GIB } from "../core/units.ts";
import type { Machine } from "../machine/machine.ts";
import { checkFits, type Verdict } from "../plan/fit.ts";
import { planMemory, planPools, regionBytes } from "../plan/memory-plan.ts";
import type { PlanRequest } from "../plan/remedies.ts";

/** One context of the sweep; bytes over all pools, `deviceBytes` in the one that holds weights and KV. */
export interface SweepPoint {
  ctxTokens: number;
  kvBytes: number;
  scratchBytes: number;
  deviceBytes: number;
  verdict: Verdict;
}

const FIRST_CTX_TOKENS = 4096;

/** Plans for contexts that double from 4096 (or the model's own, where that is less) to the model's own. */
export function sweepContexts(request: PlanRequest, machine: Machine): SweepPoint[] {
  const { model, options, name } = request;
  const most = model.spec.contextTokens;
  const contexts: number[] = [];
  for (let ctx = Math.min(FIRST_CTX_TOKENS, most); ctx < most; ctx *= 2) contexts.push(ctx);
  const device = planPools(options.backend, machine).device.id;
  return [...contexts, most].map((ctxTokens) => {
    const plan = planMemory(name, model, { ...options, ctxTokens }, machine);
    return {
      ctxTokens,
      kvBytes: regionBytes(plan, ({ owner }) => owner === "kv"),
      scratchBytes: regionBytes(plan, ({ owner }) => owner === "scratch"),
      deviceBytes: regionBytes(plan, ({ pool }) => pool === device),
      verdict: checkFits(plan, machine).verdict,
    };
  });
}

/** The sweep with aligned columns. */
export function sweepText({ name, options }: PlanRequest, points: readonly SweepPoint[]): string {
  const slots = options.slots === 1 ? "" : `, ${options.slots} slots`;
  const rows = points.map((point) => [
    String(point.ctxTokens),
    ...[point.kvBytes, point.scratchBytes, point.deviceBytes].map(formatBytes),
    point.verdict,
  ]);
  const lines = textTable("rrrrl", [["context", "KV", "scratch", "need", "verdict"], ...rows]);
  return `${name}, ${options.backend} backend${slots}\n\n${lines.join("\n")}\n`;
}

/** The sweep as SVG: need and KV in GiB, with what is available as a line across. */
export function sweepChart(request: PlanRequest, points: readonly SweepPoint[], machine: Machine): string {
  const { device } = planPools(request.options.backend, machine);
  const line = (name: string, pick: (point: SweepPoint) => number) => ({
    name,
    points: points.map((point) => ({ x: point.ctxTokens, y: pick(point) / GIB })),
  });
  const available = device.availableBytes;
  return drawLineChart(
    [
      line("need", ({ deviceBytes }) => deviceBytes),
      line("attention state", ({ kvBytes }) => kvBytes),
      line("scratch", ({ scratchBytes }) => scratchBytes),
    ],
    {
      title: `${request.name} on ${machine.name}`,
      xLabel: "context, tokens",
      yLabel: "memory, GiB",
      logX: true,
      limit: { y: available / GIB, label: `${formatBytes(available)} available` },
    },
  );
}
