// One forward pass over a batch: embedding, then per layer attention and mixture of experts, each between a
// hyper-connection read and write, then the head. Nothing in any KV state changes before the whole pass is done.

import type { ModelSpec } from "../../model/model-spec.ts";
import { ropeFrequencies } from "../../model/rope-frequencies.ts";
import type { BoundLayer, BoundModel } from "../../model/weights.ts";
import type { ForwardOptions, ForwardResult, TraceSink } from "../backend.ts";
import { type Segment as BatchSegment, type TokenBatch, wantedRows } from "../token-batch.ts";
import { resultOfRows } from "../top-logits.ts";
import { attention } from "./attention.ts";
import { mixtureOfExperts } from "./experts.ts";
import { outputLogits } from "./head.ts";
import { readStreams, writeStreams } from "./hyper-connections.ts";
import type { ReferenceKv } from "./kv-state.ts";
import { rmsNorm } from "./norm.ts";
import { type InputObserver, inputObserver } from "./observation.ts";
import type { Rounding } from "./rounding.ts";
import type { Decoded } from "./weight-decoding.ts";

/** A range laid out, with its state. */
export type Segment = BatchSegment<ReferenceKv>;
/** A batch of this backend. */
export type Batch = TokenBatch<ReferenceKv>;

/** What the blocks of one layer work with. */
export interface LayerPass {
  spec: ModelSpec;
  weights: Decoded<BoundLayer>;
  batch: Batch;
  /** Rotary frequencies of this layer's kind. */
  frequencies: Float32Array;
  rounding: Rounding;
  /** State changes, run after the last layer. */
  commits: (() => void)[];
  observe: InputObserver;
  trace: TraceSink | undefined;
}

/** Evaluates the batch, appends it to the KV states and returns the wanted logits. */
export function forwardBatch(
  model: Decoded<BoundModel>,
  batch: Batch,
  rounding: Rounding,
  options: ForwardOptions,
): ForwardResult {
  const { spec } = model;
  const commits: (() => void)[] = [];
  const observe = inputObserver(options);
  const plain = ropeFrequencies(spec.rope, false);
  const stretched = ropeFrequencies(spec.rope, true);
  let streams = embed(model, batch.tokens);
  for (const weights of model.layers) {
    const frequencies = weights.spec.compressRatio === 0 ? plain : stretched;
    const pass = { spec, weights, batch, frequencies, rounding, commits, observe, trace: options.trace };
    streams = forwardLayer(pass, streams);
  }
  const logits = batch.segments.map((segment) => {
    const rows = wantedRows(segment);
    if (rows === 0) return new Float32Array(0);
    const width = spec.hyperCount * spec.hiddenSize;
    const end = segment.first + segment.count;
    return outputLogits(streams.subarray((end - rows) * width, end * width), model, observe);
  });
  for (const commit of commits) commit();
  for (const segment of batch.segments) segment.kv.advance(segment.count);
  return resultOfRows(batch.segments, logits);
}

/** Every stream starts as the token's embedding: [tokens, n, hidden]. */
function embed(model: Decoded<BoundModel>, tokens: Int32Array): Float32Array {
  const { hyperCount: n, hiddenSize: hidden } = model.spec;
  const streams = new Float32Array(tokens.length * n * hidden);
  tokens.forEach((token, row) => {
    const embedding = model.embedding.data.subarray(token * hidden, (token + 1) * hidden);
    for (let k = 0; k < n; k++) streams.set(embedding, (row * n + k) * hidden);
  });
  return streams;
}

function forwardLayer(pass: LayerPass, streams: Float32Array): Float32Array {
  const { weights, spec, trace } = pass;
  const { hiddenSize, normEpsilon, hyperCount } = spec;

  const attnRead = readStreams(streams, weights.hcAttn, spec);
  const attnOut = attention(pass, rmsNorm(attnRead.input, hiddenSize, normEpsilon, weights.attnNorm.data));
  trace?.("attn_out", weights.spec.index, attnOut);
  const between = writeStreams(streams, attnOut, attnRead, hyperCount);

  const ffnRead = readStreams(between, weights.hcFfn, spec);
  const ffnOut = mixtureOfExperts(
    pass,
    rmsNorm(ffnRead.input, hiddenSize, normEpsilon, weights.ffnNorm.data),
  );
  trace?.("moe_out", weights.spec.index, ffnOut);
  const after = writeStreams(between, ffnOut, ffnRead, hyperCount);
  trace?.("streams", weights.spec.index, after);
  return after;
}
