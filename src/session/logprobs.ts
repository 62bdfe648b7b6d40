// Log-probabilities of the RAW distribution: softmax of the logits as the model gave them, before bias,
// penalties, temperature and filters. So they do not depend on how the token was sampled.
import { TOP_LOGITS, type TopLogits } from "../backend/backend.ts";
import { assert, Ds4Error } from "../core/errors.ts";
import { largestValues } from "../core/largest-values.ts";
import { sumExp } from "../core/sum-exp.ts";
import { argmax } from "./sampler.ts";

/** Most alternatives of one token; ds4 has the same limit, OpenAI's is 20. */
export const MAX_TOP_LOGPROBS = 128;

/** One token with its logit and natural-log probability. */
export interface TokenLogprob {
  tokenId: number;
  logit: number;
  logprob: number;
}

/** ln of the sum of exp over the row, in float64. Throws `session` on NaN or infinite maxima. */
export function logSumExp(logits: Float32Array): number {
  const max = logits[argmax(logits)];
  return max + Math.log(sumExp(logits, max));
}

/**
 * The chosen token's log-probability and the `count` likeliest tokens, best first (ties: lowest id). Candidates give the
 * same as their row, which is needed only for a chosen token that is none of them. Throws `request` on a count out of range,
 * `session` on damaged logits.
 */
export function topLogprobs(
  logits: Float32Array | TopLogits,
  chosenId: number,
  count: number,
): { chosen: TokenLogprob; top: TokenLogprob[] } {
  if (!Number.isInteger(count) || count < 0 || count > MAX_TOP_LOGPROBS) {
    throw new Ds4Error(
      "request",
      `top logprobs: expected an integer in 0..${MAX_TOP_LOGPROBS}, got ${count}`,
    );
  }
  if (!(logits instanceof Float32Array)) return ofCandidates(logits, chosenId, count);
  const norm = logSumExp(logits);
  const entry = (tokenId: number): TokenLogprob => entryOf(tokenId, logits[tokenId], norm);
  return { chosen: entry(chosenId), top: Array.from(largestValues(logits, count).places, entry) };
}

function ofCandidates(
  top: TopLogits,
  chosenId: number,
  count: number,
): { chosen: TokenLogprob; top: TokenLogprob[] } {
  if (!Number.isFinite(top.logits[0])) return topLogprobs(top.row(), chosenId, count);
  assert(MAX_TOP_LOGPROBS <= TOP_LOGITS, "alternatives are candidates");
  const norm = top.logSumExp();
  const at = top.ids.indexOf(chosenId);
  const logit = at < 0 ? top.row()[chosenId] : top.logits[at];
  const best = Array.from(top.ids.subarray(0, count), (id, i) => entryOf(id, top.logits[i], norm));
  return { chosen: entryOf(chosenId, logit, norm), top: best };
}

function entryOf(tokenId: number, logit: number, norm: number): TokenLogprob {
  return { tokenId, logit, logprob: logit - norm };
}
