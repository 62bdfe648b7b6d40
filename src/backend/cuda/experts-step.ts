// Router and mixture of experts of one layer on the device: `x` to `blockOut`.
import { type CudaLayerWeights, type CudaPass, multiply, observe, trace } from "./pass.ts";

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
  if (options.observeInputs) observeExperts(pass, layer, options.observeInputs);
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

type Observer = NonNullable<CudaPass["options"]["observeInputs"]>;

/** Shows each expert's inputs: its tokens' rows of x, and its rows of h, which are grouped by expert. */
function observeExperts(pass: CudaPass, layer: CudaLayerWeights, show: Observer): void {
  const { ctx, spec, buffers, tokens } = pass;
  const { hiddenSize: hidden, expertUsedCount: used, expertHiddenSize: inner } = spec;
  const { stream } = ctx;
  const sharedInner = spec.expertSharedCount * inner;
  observe(pass, layer.gateShared.name, buffers.x, tokens, hidden);
  observe(pass, layer.upShared.name, buffers.x, tokens, hidden);
  observe(pass, layer.downShared.name, buffers.sharedH, tokens, sharedInner);
  const ids = stream.read(buffers.expertIds, new Int32Array(tokens * used));
  const x = stream.read(buffers.x, new Float32Array(tokens * hidden));
  const h = stream.read(buffers.h, new Float32Array(tokens * used * inner));
  let row = 0;
  for (let expert = 0; expert < spec.expertCount; expert++) {
    const rows: number[] = [];
    ids.forEach((id, slot) => {
      if (id === expert) rows.push(Math.floor(slot / used));
    });
    if (rows.length === 0) continue;
    const inputs = new Float32Array(rows.length * hidden);
    rows.forEach((token, at) => {
      inputs.set(x.subarray(token * hidden, (token + 1) * hidden), at * hidden);
    });
    show(layer.gateExps.name, expert, inputs, rows.length);
    show(layer.upExps.name, expert, inputs, rows.length);
    show(layer.downExps.name, expert, h.subarray(row * inner, (row + rows.length) * inner), rows.length);
    row += rows.length;
  }
}
