// Router and mixture of experts of one layer on native kernels: `scratch.x` to `scratch.blockOut`. See the reference's
// router.ts and experts.ts for what is computed.
import type { LayerWeights } from "./layer-weights.ts";
import { notFinite, type Pass } from "./pass.ts";

/** [tokens, hidden] to [tokens, hidden]. Throws `unsupported-model` when a router score is not finite. */
export function expertsStep(pass: Pass, layer: LayerWeights): void {
  const { kernels, workspace, scratch, tokens, options } = pass;
  const { expertUsedCount: used } = pass.spec;
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
  if (options.observeInputs) observeExperts(pass, layer, options.observeInputs);
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

type Observer = NonNullable<Pass["options"]["observeInputs"]>;

/** Shows each expert's inputs: its tokens' rows of x, and its rows of h, which the kernel keeps grouped by expert. */
function observeExperts({ spec, scratch, tokens }: Pass, layer: LayerWeights, observe: Observer): void {
  const { hiddenSize: hidden, expertUsedCount: used, expertHiddenSize: inner, expertCount } = spec;
  const x = scratch.x.subarray(0, tokens * hidden);
  observe(layer.gateShared.name, -1, x, tokens);
  observe(layer.upShared.name, -1, x, tokens);
  const sharedInner = spec.expertSharedCount * inner;
  observe(layer.downShared.name, -1, scratch.sharedH.subarray(0, tokens * sharedInner), tokens);
  let row = 0;
  for (let expert = 0; expert < expertCount; expert++) {
    const rows: number[] = [];
    for (let slot = 0; slot < tokens * used; slot++) {
      if (scratch.expertIds[slot] === expert) rows.push(Math.floor(slot / used));
    }
    if (rows.length === 0) continue;
    const inputs = new Float32Array(rows.length * hidden);
    rows.forEach((token, at) => {
      inputs.set(x.subarray(token * hidden, (token + 1) * hidden), at * hidden);
    });
    observe(layer.gateExps.name, expert, inputs, rows.length);
    observe(layer.upExps.name, expert, inputs, rows.length);
    const activated = scratch.h.subarray(row * inner, (row + rows.length) * inner);
    observe(layer.downExps.name, expert, activated, rows.length);
    row += rows.length;
  }
}
