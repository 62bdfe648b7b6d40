// The line at the end of a run: tokens, rates, memory. One format for people, one object for JSON.
import { formatBytes } from "../core/units.ts";
import type { EngineStats } from "../session/engine-protocol.ts";
import type { FinishEvent } from "../session/generate.ts";

const rate = (tokens: number, seconds: number) => (seconds > 0 ? tokens / seconds : 0);

/** Tokens that were evaluated for the prompt: those that could not be reused. */
function prefilled(finish: FinishEvent): number {
  return finish.promptTokens - finish.reusedTokens;
}

/** `prefill 12 tokens, 345.6 t/s · decode …`. */
export function summaryLine(finish: FinishEvent, stats: EngineStats): string {
  const prefill = prefilled(finish);
  const reused = finish.reusedTokens > 0 ? ` (${finish.reusedTokens} reused)` : "";
  const prefillRate = rate(prefill, finish.prefillSeconds).toFixed(1);
  const decodeRate = rate(finish.completionTokens, finish.decodeSeconds).toFixed(1);
  const memory = `weights ${formatBytes(stats.weightBytes)}, KV ${formatBytes(stats.kvBytes)}`;
  return [
    `prefill ${prefill} tokens${reused}, ${prefillRate} t/s`,
    `decode ${finish.completionTokens} tokens, ${decodeRate} t/s`,
    `memory: ${memory}, scratch ${formatBytes(stats.scratchBytes)}`,
  ].join(" · ");
}

/** The same for programs. */
export function summaryJson(finish: FinishEvent, stats: EngineStats) {
  const usage = {
    promptTokens: finish.promptTokens,
    reusedTokens: finish.reusedTokens,
    completionTokens: finish.completionTokens,
    thinkingTokens: finish.thinkingTokens,
  };
  const timings = {
    prefillSeconds: finish.prefillSeconds,
    prefillTokensPerSecond: rate(prefilled(finish), finish.prefillSeconds),
    decodeSeconds: finish.decodeSeconds,
    decodeTokensPerSecond: rate(finish.completionTokens, finish.decodeSeconds),
  };
  const { weightBytes, kvBytes, scratchBytes } = stats;
  return { usage, timings, memory: { weightBytes, kvBytes, scratchBytes } };
}
