// Router and mixture of experts of one layer on the device: `x` to `blockOut`.
import { observeExperts } from "../expert-slots.ts";
import { type CudaLayerWeights, type CudaPass, multiply, trace } from "./pass.ts";

/** [tokens, hidden] to [tokens, hidden]. Scores that are not finite show in `flag` as the layer's index + 1. */
export function expertsStep(pass: CudaPass, layer: CudaLayerWeights): void {
  const { ctx, steps, work, spec, buffers, tokens, options } = pass;
  const { expertUsedCount: used } = spec;
  route(pass, layer);
  const experts = {
    ...{ gate: layer.gateExps.matrix, up: layer.upExps.matrix, down: layer.downExps.matrix },
    sharedGate: layer.gateShared.matrix,
    sharedUp: layer.upShared.matrix,
    sharedDown: layer.downShared.matrix,
  };
  const { swigluClampExperts: limit, swigluClampShared: sharedLimit } = layer.spec;
  const { x, expertIds, expertWeights, h, sharedH, blockOut } = buffers;
  steps.groupByExpert(ctx, expertIds, tokens, used, spec.expertCount, work.routing);
  steps.expertsUp(ctx, experts, tokens, used, limit, sharedLimit, x, expertIds, work.routing, h, sharedH);
  if (options.observeInputs) {
    const { hiddenSize: hidden, expertHiddenSize: inner, expertSharedCount } = spec;
    const inputs = {
      x: ctx.stream.read(x, new Float32Array(tokens * hidden)),
      experts: ctx.stream.read(expertIds, new Int32Array(tokens * used)),
      sharedH: ctx.stream.read(sharedH, new Float32Array(tokens * expertSharedCount * inner)),
      h: ctx.stream.read(h, new Float32Array(tokens * used * inner)),
    };
    observeExperts(spec, layer, inputs, options.observeInputs);
  }
  steps.expertsDown(ctx, experts, tokens, used, h, sharedH, expertWeights, work.routing, blockOut);
}

function route(pass: CudaPass, layer: CudaLayerWeights): void {
  const { ctx, steps, spec, buffers, tokens, options } = pass;
  const { expertCount: experts, expertUsedCount: used } = spec;
  multiply(pass, buffers.x, spec.hiddenSize, [[layer.router, buffers.routerLogits]]);
  steps.route(
    ctx,
    tokens,
    {
      ...{ experts, used, weightsScale: spec.expertWeightsScale, normalize: spec.expertWeightsNorm },
      ...{ bias: layer.bias, table: layer.table },
    },
    buffers.routerLogits,
    buffers.tokenIds,
    buffers.expertIds,
    buffers.expertWeights,
    buffers.flag,
    layer.spec.index + 1,
  );
  if (options.trace === undefined) return;
  const ids = ctx.stream.read(buffers.expertIds, new Int32Array(tokens * used));
  options.trace("expert_ids", layer.spec.index, ids);
  trace(pass, "expert_weights", layer.spec.index, buffers.expertWeights, used);
}
