// Router and mixture of experts of one layer on native kernels: `scratch.x` to `scratch.blockOut`. See the reference's
// router.ts and experts.ts for what is computed.
import { observeExperts } from "../expert-slots.ts";
import type { LayerWeights } from "./layer-weights.ts";
import { notFinite, type Pass } from "./pass.ts";

/** [tokens, hidden] to [tokens, hidden]. Throws `unsupported-model` when a router score is not finite. */
export function expertsStep(pass: Pass, layer: LayerWeights): void {
  const { kernels, workspace, spec, scratch, tokens, options } = pass;
  const { expertUsedCount: used } = spec;
  route(pass, layer);
  const experts = [
    layer.gateExps.matrix,
    layer.upExps.matrix,
    layer.downExps.matrix,
    layer.gateShared.matrix,
    layer.upShared.matrix,
    layer.downShared.matrix,
  ] as const;
  const { swigluClampExperts, swigluClampShared } = layer.spec;
  const { x, expertIds, expertWeights, h, sharedH, blockOut } = scratch;
  kernels.expertsUp(
    workspace,
    ...experts,
    tokens,
    used,
    swigluClampExperts,
    swigluClampShared,
    x,
    expertIds,
    h,
    sharedH,
  );
  if (options.observeInputs) {
    const { hiddenSize: hidden, expertHiddenSize: inner, expertSharedCount } = spec;
    const inputs = {
      x: x.subarray(0, tokens * hidden),
      experts: expertIds.subarray(0, tokens * used),
      sharedH: sharedH.subarray(0, tokens * expertSharedCount * inner),
      h,
    };
    observeExperts(spec, layer, inputs, options.observeInputs);
  }
  kernels.expertsDown(workspace, ...experts, tokens, used, h, sharedH, expertWeights, blockOut);
}

function route(pass: Pass, layer: LayerWeights): void {
  const { kernels, workspace, spec, scratch, batch, tokens, options } = pass;
  const { expertCount, expertUsedCount: used } = spec;
  options.observeInputs?.(layer.router.name, -1, scratch.x.subarray(0, tokens * spec.hiddenSize), tokens);
  kernels.multiply(workspace, tokens, scratch.x, [layer.router.matrix], [scratch.routerLogits]);
  const finite = kernels.route(
    workspace,
    tokens,
    expertCount,
    used,
    spec.vocabSize,
    spec.expertWeightsScale,
    spec.expertWeightsNorm,
    scratch.routerLogits,
    layer.bias,
    layer.table,
    batch.tokens,
    scratch.expertIds,
    scratch.expertWeights,
  );
  if (!finite) throw notFinite(`layer ${layer.spec.index}: router scores are not finite numbers`);
  options.trace?.("expert_ids", layer.spec.index, scratch.expertIds.subarray(0, tokens * used));
  options.trace?.("expert_weights", layer.spec.index, scratch.expertWeights.subarray(0, tokens * used));
}
