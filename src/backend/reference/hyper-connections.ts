// Hyper-connections: instead of one residual stream there are n (4). Before a block, a learned mixture of them is
// read; after it, the block's output is added to each while the streams are mixed by a nearly doubly stochastic
// matrix. The mixtures depend on the streams themselves.
import type { ModelSpec } from "../../model/model-spec.ts";
import type { HyperTensors } from "../../model/weights.ts";
import { linear } from "./linear.ts";
import { rmsNorm } from "./norm.ts";
import type { Decoded } from "./weight-decoding.ts";

/** What a read hands to the block, and what the matching write needs. */
export interface HyperRead {
  /** [tokens, hidden]: the block's input. */
  input: Float32Array;
  /** [tokens, n]: how much of the block's output each stream takes. */
  post: Float32Array;
  /** [tokens, n, n]: comb[j][k] is how much of stream j goes to the new stream k. */
  comb: Float32Array;
}

/** Reads the block's input out of `streams` [tokens, n, hidden]. */
export function readStreams(
  streams: Float32Array,
  weights: Decoded<HyperTensors>,
  spec: ModelSpec,
): HyperRead {
  const { hyperCount: n, hiddenSize: hidden, hyperEpsilon } = spec;
  const tokens = streams.length / (n * hidden);
  const rows = 2 * n + n * n;
  const mixes = linear(weights.fn.data, n * hidden, rmsNorm(streams, n * hidden, spec.normEpsilon)); // [tokens, rows]
  const [preScale, postScale, combScale] = weights.scale.data;
  const base = weights.base.data;
  const pre = new Float32Array(tokens * n);
  const post = new Float32Array(tokens * n);
  const comb = new Float32Array(tokens * n * n);
  for (let token = 0; token < tokens; token++) {
    const mix = mixes.subarray(token * rows, (token + 1) * rows);
    for (let k = 0; k < n; k++) {
      pre[token * n + k] = sigmoid(mix[k] * preScale + base[k]) + hyperEpsilon;
      post[token * n + k] = 2 * sigmoid(mix[n + k] * postScale + base[n + k]);
    }
    const matrix = comb.subarray(token * n * n, (token + 1) * n * n);
    for (let i = 0; i < n * n; i++) matrix[i] = mix[2 * n + i] * combScale + base[2 * n + i];
    balance(matrix, n, spec.sinkhornIterations, hyperEpsilon);
  }
  return { input: mixStreams(streams, pre, n, hidden), post, comb };
}

/** new[k] = post[k] * output + sum over j of comb[j][k] * streams[j]. A fresh [tokens, n, hidden]. */
export function writeStreams(
  streams: Float32Array,
  output: Float32Array,
  read: HyperRead,
  n: number,
): Float32Array {
  const hidden = output.length / (read.post.length / n);
  const out = new Float32Array(streams.length);
  for (let token = 0; token * hidden < output.length; token++) {
    for (let k = 0; k < n; k++) {
      const target = (token * n + k) * hidden;
      const post = read.post[token * n + k];
      for (let i = 0; i < hidden; i++) {
        let sum = post * output[token * hidden + i];
        for (let j = 0; j < n; j++) {
          sum += read.comb[(token * n + j) * n + k] * streams[(token * n + j) * hidden + i];
        }
        out[target + i] = sum;
      }
    }
  }
  return out;
}

/** sum over k of weights[k] * streams[k]: [tokens, n, hidden] with [tokens, n] to [tokens, hidden]. */
export function mixStreams(
  streams: Float32Array,
  weights: Float32Array,
  n: number,
  hidden: number,
): Float32Array {
  const out = new Float32Array(streams.length / n);
  for (let token = 0; token * hidden < out.length; token++) {
    for (let i = 0; i < hidden; i++) {
      let sum = 0;
      for (let k = 0; k < n; k++) sum += weights[token * n + k] * streams[(token * n + k) * hidden + i];
      out[token * hidden + i] = sum;
    }
  }
  return out;
}

/**
 * Sinkhorn balancing in place: softmax over each row, columns to sum 1, then `iterations - 1` times rows and
 * columns. Epsilon as in the original: added to the softmax and to every divisor.
 */
function balance(matrix: Float32Array, n: number, iterations: number, epsilon: number): void {
  for (let row = 0; row < n; row++) {
    let max = Number.NEGATIVE_INFINITY;
    for (let column = 0; column < n; column++) max = Math.max(max, matrix[row * n + column]);
    let sum = 0;
    for (let column = 0; column < n; column++) sum += Math.exp(matrix[row * n + column] - max);
    for (let column = 0; column < n; column++) {
      matrix[row * n + column] = Math.exp(matrix[row * n + column] - max) / sum + epsilon;
    }
  }
  normalizeLines(matrix, n, 1, n, epsilon);
  for (let iteration = 1; iteration < iterations; iteration++) {
    normalizeLines(matrix, n, n, 1, epsilon);
    normalizeLines(matrix, n, 1, n, epsilon);
  }
}

/** Divides each of the `n` lines (start `line * lineStride`, step `stride`) by its sum. */
function normalizeLines(
  matrix: Float32Array,
  n: number,
  lineStride: number,
  stride: number,
  epsilon: number,
): void {
  for (let line = 0; line < n; line++) {
    let sum = epsilon;
    for (let i = 0; i < n; i++) sum += matrix[line * lineStride + i * stride];
    for (let i = 0; i < n; i++) matrix[line * lineStride + i * stride] /= sum;
  }
}

/** 1 / (1 + e^-x). */
export function sigmoid(x: number): number {
  return 1 / (1 + Math.exp(-x));
}
