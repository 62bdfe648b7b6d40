// The router: which experts a token goes to and with what weight. Scores are sqrt(softplus(logit)); the bias only
// helps choosing. The first layers choose by token id from a table and take only the weights from the scores.
import { UnsupportedModelError } from "../../core/errors.ts";
import type { ModelSpec } from "../../model/model-spec.ts";
import type { BoundLayer } from "../../model/weights.ts";
import { linear } from "./linear.ts";
import type { Decoded } from "./weight-decoding.ts";

/** Per token the chosen experts, distinct and in range, and their weights: both [tokens, used]. */
export interface Routing {
  experts: Int32Array;
  weights: Float32Array;
}

/** Keeps the sum of the chosen scores from being zero. */
const WEIGHT_SUM_EPSILON = 1e-20;

/**
 * Routes `x` [tokens, hidden]. Throws `unsupported-model` when a score is not finite: the weights or the state are
 * damaged, and no expert can be named.
 */
export function routeTokens(
  layer: Decoded<BoundLayer>,
  spec: ModelSpec,
  x: Float32Array,
  tokens: Int32Array,
): Routing {
  const { expertCount, expertUsedCount: used } = spec;
  const scores = linear(layer.router.data, spec.hiddenSize, x).map(sqrtSoftplus); // [tokens, experts]
  const experts = new Int32Array(tokens.length * used);
  const weights = new Float32Array(tokens.length * used);
  for (let token = 0; token < tokens.length; token++) {
    const own = scores.subarray(token * expertCount, (token + 1) * expertCount);
    const chosen = layer.tid2eid
      ? layer.tid2eid.data.subarray(tokens[token] * used, (tokens[token] + 1) * used)
      : chooseExperts(own, layer.expBias!.data, used, layer.spec.index);
    let sum = WEIGHT_SUM_EPSILON;
    for (const expert of chosen) sum += own[expert];
    if (!Number.isFinite(sum)) throw notFinite(layer.spec.index);
    const factor = spec.expertWeightsScale / (spec.expertWeightsNorm ? sum : 1);
    chosen.forEach((expert, slot) => {
      experts[token * used + slot] = expert;
      weights[token * used + slot] = own[expert] * factor;
    });
  }
  return { experts, weights };
}

/**
 * The `count` experts with the largest score + bias, best first; the lower index wins ties. Throws
 * `unsupported-model` when any of these is not finite.
 */
export function chooseExperts(
  scores: Float32Array,
  bias: Float32Array,
  count: number,
  layerIndex: number,
): Int32Array {
  const ranks = scores.map((score, expert) => score + bias[expert]);
  if (!ranks.every(Number.isFinite)) throw notFinite(layerIndex);
  const order = Array.from(ranks.keys());
  order.sort((a, b) => ranks[b] - ranks[a] || a - b);
  return Int32Array.from(order.slice(0, count));
}

function notFinite(layerIndex: number): UnsupportedModelError {
  return new UnsupportedModelError(
    `layer ${layerIndex}: router scores are not finite numbers, expected finite ones; ` +
      `the model file or the KV state is damaged`,
  );
}

/** sqrt(ln(1 + e^x)), without overflow for large x. */
function sqrtSoftplus(x: number): number {
  return Math.sqrt(Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))));
}
