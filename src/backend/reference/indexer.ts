// The indexer of ratio-4 layers: a small attention that only chooses. It scores every visible compressed entry for
// each token and keeps the best `topK` for the real attention.
import type { ModelSpec } from "../../model/model-spec.ts";
import { dotProduct } from "./linear.ts";

/**
 * Scores `visible` entries for one token: sum over heads of weight_h / sqrt(heads) * relu(q_h . k) / sqrt(dim).
 * `query` is [heads, dim] and `headWeights` [heads], both at the given row; `entries` [>= visible, dim].
 */
export function indexerScores(
  query: Float32Array,
  headWeights: Float32Array,
  entries: Float32Array,
  visible: number,
  spec: ModelSpec,
): Float32Array {
  const { indexerHeadCount: heads, indexerHeadDim: dim } = spec;
  const scores = new Float32Array(visible);
  const scale = 1 / (Math.sqrt(heads) * Math.sqrt(dim));
  for (let entry = 0; entry < visible; entry++) {
    let sum = 0;
    for (let head = 0; head < heads; head++) {
      const match = dotProduct(query, head * dim, entries, entry * dim, dim);
      if (match > 0) sum += headWeights[head] * match;
    }
    scores[entry] = sum * scale;
  }
  return scores;
}

/**
 * Indices of the `count` largest scores (all, when there are fewer), ascending by index. Equal scores: the lower
 * index wins. Scores that are not numbers rank last, so the result is always in range and without repeats.
 */
export function selectTop(scores: Float32Array, count: number): Int32Array {
  const order = Int32Array.from(scores, (_, index) => index);
  if (scores.length <= count) return order;
  const rank = (index: number) => (Number.isNaN(scores[index]) ? Number.NEGATIVE_INFINITY : scores[index]);
  order.sort((a, b) => {
    const left = rank(a);
    const right = rank(b);
    return left === right ? a - b : right - left;
  });
  return order.slice(0, count).sort();
}
