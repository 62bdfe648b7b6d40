// The line at the end of a run: tokens, rates, memory. One format for people, one object for JSON.

import { formatBytes, formatSeconds } from "../core/units.ts";
import { oomScoreText } from "../machine/oom-score.ts";
import type { EngineInfo, EngineStats } from "../session/engine-protocol.ts";
import type { FinishEvent } from "../session/generate.ts";

const rate = (tokens: number, seconds: number) => (seconds > 0 ? tokens / seconds : 0);

/** Tokens that were evaluated for the prompt: those that could not be reused. */
function prefilled(finish: FinishEvent): number {
  return finish.promptTokens - finish.reusedTokens;
}

function loadTime({ weightBytes, loadSeconds }: EngineInfo): string {
  return `${formatSeconds(loadSeconds)}, ${formatBytes(rate(weightBytes, loadSeconds))}/s`;
}

/** `prefill 12 tokens, 345.6 t/s · decode …`; with `info`, how the model was loaded comes first. */
export function summaryLine(finish: FinishEvent, stats: EngineStats, info?: EngineInfo): string {
  const prefill = prefilled(finish);
  const reused = finish.reusedTokens > 0 ? ` (${finish.reusedTokens} reused)` : "";
  const prefillRate = rate(prefill, finish.prefillSeconds).toFixed(1);
  const decodeRate = rate(finish.completionTokens, finish.decodeSeconds).toFixed(1);
  const memory = `weights ${formatBytes(stats.weightBytes)}, KV ${formatBytes(stats.kvBytes)}`;
  return [
    ...(info ? [`load ${loadTime(info)}`] : []),
    `prefill ${prefill} tokens${reused}, ${prefillRate} t/s`,
    `decode ${finish.completionTokens} tokens, ${decodeRate} t/s`,
    `memory: ${memory}, scratch ${formatBytes(stats.scratchBytes)}`,
  ].join(" · ");
}

/** `loaded 8.85 GiB in 12.3 s, 736.79 MiB/s`, and who ends first when memory runs out, if that was decided. */
export function loadLine(info: EngineInfo, oomScore?: number): string {
  const loaded = `ds4: loaded ${formatBytes(info.weightBytes)} in ${loadTime(info)}`;
  if (oomScore === undefined) return loaded;
  return `${loaded} · ${oomScoreText(oomScore)}`;
}

/** The same as `summaryLine` for programs. */
export function summaryJson(
  finish: FinishEvent,
  stats: EngineStats,
  { loadSeconds, weightBytes: loadedBytes }: EngineInfo,
) {
  const usage = {
    promptTokens: finish.promptTokens,
    reusedTokens: finish.reusedTokens,
    completionTokens: finish.completionTokens,
    thinkingTokens: finish.thinkingTokens,
  };
  const timings = {
    loadSeconds,
    loadBytesPerSecond: rate(loadedBytes, loadSeconds),
    prefillSeconds: finish.prefillSeconds,
    prefillTokensPerSecond: rate(prefilled(finish), finish.prefillSeconds),
    decodeSeconds: finish.decodeSeconds,
    decodeTokensPerSecond: rate(finish.completionTokens, finish.decodeSeconds),
  };
  const { weightBytes, kvBytes, scratchBytes } = stats;
  return { usage, timings, memory: { weightBytes, kvBytes, scratchBytes } };
}
