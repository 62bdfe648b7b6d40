// Mixture of experts: every token goes through its chosen experts and the shared one, each a clamped SwiGLU. Tokens
// are grouped by expert, so that a weight is read once for all of them.
import { gatherSlots, slotsByExpert } from "../expert-slots.ts";
import type { LayerPass } from "./forward.ts";
import { sigmoid } from "./hyper-connections.ts";
import { linear } from "./linear.ts";
import { routeTokens } from "./router.ts";
import type { Weight } from "./weight-decoding.ts";

/** [tokens, hidden] to [tokens, hidden]: shared expert plus the weighted chosen ones. */
export function mixtureOfExperts(pass: LayerPass, x: Float32Array): Float32Array {
  const { weights, spec, batch, observe } = pass;
  const { hiddenSize: hidden, expertUsedCount: used } = spec;
  observe(weights.router, -1, x);
  const routing = routeTokens(weights, spec, x, batch.tokens);
  pass.trace?.("expert_ids", weights.spec.index, routing.experts);
  pass.trace?.("expert_weights", weights.spec.index, routing.weights);

  const sharedClamp = weights.spec.swigluClampShared;
  const out = swiglu(pass, -1, [weights.gateShared, weights.upShared, weights.downShared], x, sharedClamp);
  for (const [expert, slots] of slotsByExpert(routing.experts, spec.expertCount)) {
    const input = gatherSlots(x, hidden, slots, used);
    const routedClamp = weights.spec.swigluClampExperts;
    const result = swiglu(
      pass,
      expert,
      [weights.gateExps, weights.upExps, weights.downExps],
      input,
      routedClamp,
    );
    slots.forEach((slot, row) => {
      const target = Math.floor(slot / used) * hidden;
      const weight = routing.weights[slot];
      for (let i = 0; i < hidden; i++) out[target + i] += weight * result[row * hidden + i];
    });
  }
  return out;
}

/**
 * down(silu(min(gate(x), limit)) * clamp(up(x), -limit, limit)). `expert` selects the slice of three-dimensional
 * weights; -1 for the shared expert, whose weights are matrices.
 */
function swiglu(
  pass: LayerPass,
  expert: number,
  [gateWeight, upWeight, downWeight]: [Weight, Weight, Weight],
  x: Float32Array,
  limit: number,
): Float32Array {
  const { hiddenSize: hidden, expertHiddenSize } = pass.spec;
  const inner = expert < 0 ? downWeight.columns : expertHiddenSize;
  const slice = Math.max(0, expert);
  pass.observe(gateWeight, expert, x);
  pass.observe(upWeight, expert, x);
  const gate = linear(gateWeight.data, hidden, x, slice * inner, inner); // [tokens, inner]
  const up = linear(upWeight.data, hidden, x, slice * inner, inner);
  const activated = gate.map((value, index) => {
    const clamped = Math.min(value, limit);
    return clamped * sigmoid(clamped) * Math.min(limit, Math.max(-limit, up[index]));
  });
  pass.observe(downWeight, expert, activated);
  return linear(downWeight.data, inner, activated, slice * hidden, hidden);
}
