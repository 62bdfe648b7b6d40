// What can be refused before a request is queued.
import { Ds4Error } from "../core/errors.ts";
import { MAX_TOP_LOGPROBS } from "../session/logprobs.ts";
import { resolveSampling } from "../session/sampling-params.ts";
import { ContextFullError } from "../session/session-errors.ts";
import { StopMatcher } from "../session/stop-strings.ts";
import type { ScheduledRequest, SchedulerInfo } from "./scheduler-types.ts";

/** Throws `context-full` when no token of answer would fit, else `request` or `session` naming what is wrong. */
export function checkRequest(
  request: ScheduledRequest,
  info: Pick<SchedulerInfo, "ctxTokens" | "spec">,
): void {
  const { promptTokens, maxTokens, topLogprobs, chunkTokens } = request;
  const { vocabSize } = info.spec;
  if (promptTokens.length >= info.ctxTokens) {
    const hint = "no room is left for an answer: shorten the prompt or use a larger context";
    throw new ContextFullError(0, promptTokens.length, info.ctxTokens, hint);
  }
  if (promptTokens.length === 0) throw new Ds4Error("request", "the prompt holds no token");
  const wrong = promptTokens.findIndex((id) => id < 0 || id >= vocabSize);
  if (wrong >= 0) {
    const found = promptTokens[wrong];
    throw new Ds4Error("session", `token ${wrong}: expected an id in 0..${vocabSize - 1}, got ${found}`);
  }
  resolveSampling(request.sampling ?? {}, vocabSize);
  new StopMatcher(request.stopStrings ?? []);
  checkCount("maxTokens", maxTokens, 0);
  checkCount("chunkTokens", chunkTokens, 1);
  checkCount("topLogprobs", topLogprobs, 0, MAX_TOP_LOGPROBS);
}

function checkCount(name: string, value: number | undefined, least: number, most = 2 ** 31 - 1): void {
  if (value === undefined || (Number.isInteger(value) && value >= least && value <= most)) return;
  throw new Ds4Error("request", `${name}: expected an integer in ${least}..${most}, got ${value}`);
}
