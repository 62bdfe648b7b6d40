// The way out: streams are mixed into one by their own hyper-connection, normed, and projected to the vocabulary.
import type { BoundModel } from "../../model/weights.ts";
import { mixStreams, sigmoid } from "./hyper-connections.ts";
import { linear } from "./linear.ts";
import { rmsNorm } from "./norm.ts";
import type { InputObserver } from "./observation.ts";
import type { Decoded } from "./weight-decoding.ts";

/** Logits [rows, vocab] of `streams` [rows, n, hidden]. */
export function outputLogits(
  streams: Float32Array,
  model: Decoded<BoundModel>,
  observe: InputObserver,
): Float32Array {
  const { hyperCount: n, hiddenSize: hidden, hyperEpsilon, normEpsilon } = model.spec;
  const mixes = linear(model.outputHc.fn.data, n * hidden, rmsNorm(streams, n * hidden, normEpsilon)); // [rows, n]
  const scale = model.outputHc.scale.data[0];
  const base = model.outputHc.base.data;
  const pre = mixes.map((mix, index) => sigmoid(mix * scale + base[index % n]) + hyperEpsilon);
  const x = rmsNorm(mixStreams(streams, pre, n, hidden), hidden, normEpsilon, model.outputNorm.data);
  observe(model.head, -1, x);
  return linear(model.head.data, hidden, x);
}
