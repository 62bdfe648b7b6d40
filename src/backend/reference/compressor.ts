// The compressor: every closed window of `ratio` tokens becomes one key/value entry, a per-channel softmax average
// of the tokens' projections. At ratio 4 the windows overlap: a token projects to two halves, a for the entry after
// its own window and b for its own. Unfinished windows wait as raw projections in the KV state.
import type { CompressorTensors } from "../../model/weights.ts";
import type { CompressorState } from "./kv-state.ts";
import { rmsNorm } from "./norm.ts";
import { rotate } from "./rope.ts";
import type { Decoded } from "./weight-decoding.ts";

/** What all compressors of a model share. */
export interface CompressorSettings {
  normEpsilon: number;
  /** Of compressed layers. */
  frequencies: Float32Array;
  /** Rounds a finished entry in place as quantization-aware training did; nothing when that is off. */
  roundEntry: (entry: Float32Array) => void;
}

/** One token's contribution to a channel: offsets of its projected half and of its position bias. */
interface Term {
  kv: Float32Array;
  gate: Float32Array;
  offset: number;
  apeOffset: number;
}

/**
 * Takes the projections `kv` and `gate` [count, projected] of the tokens from position `start` on, and writes every
 * entry they close into `state.entries`, beyond those that `start` tokens can see. Returns the commit: the state's
 * pending rows change only when it is called.
 */
export function compress(
  state: CompressorState,
  weights: Decoded<CompressorTensors>,
  kv: Float32Array,
  gate: Float32Array,
  start: number,
  settings: CompressorSettings,
): () => void {
  const { ratio, width, projected } = state;
  const pendingRows = start % ratio;
  const firstWindow = (start - pendingRows) / ratio;
  // Rows from the first unfinished window's first token on: [rows, projected].
  const kvRows = joinRows(state.pendingKv.subarray(0, pendingRows * projected), kv);
  const gateRows = joinRows(state.pendingGate.subarray(0, pendingRows * projected), gate);
  const rows = kvRows.length / projected;
  const closed = Math.floor(rows / ratio);

  for (let index = 0; index < closed; index++) {
    const window = firstWindow + index;
    const terms = windowTerms(state, kvRows, gateRows, index, window);
    const pooled = poolTerms(terms, weights.ape.data, width);
    const entry = rmsNorm(pooled, width, settings.normEpsilon, weights.norm.data);
    rotate(entry, width, [window * ratio], settings.frequencies, 1);
    settings.roundEntry(entry);
    state.entries.set(entry, window * width);
  }
  return () => {
    state.pendingKv.set(kvRows.subarray(closed * ratio * projected));
    state.pendingGate.set(gateRows.subarray(closed * ratio * projected));
    if (!state.overlaps || closed === 0) return;
    for (let row = 0; row < ratio; row++) {
      const from = ((closed - 1) * ratio + row) * projected;
      state.previousKv.set(kvRows.subarray(from, from + width), row * width);
      state.previousGate.set(gateRows.subarray(from, from + width), row * width);
    }
  };
}

/** The tokens that an entry mixes: its own window's, and at ratio 4 before them the previous window's a halves. */
function windowTerms(
  state: CompressorState,
  kvRows: Float32Array,
  gateRows: Float32Array,
  index: number,
  window: number,
): Term[] {
  const { ratio, width, projected, overlaps } = state;
  const terms: Term[] = [];
  if (overlaps && window > 0) {
    for (let row = 0; row < ratio; row++) {
      const apeOffset = row * projected;
      if (index > 0) {
        const offset = ((index - 1) * ratio + row) * projected;
        terms.push({ kv: kvRows, gate: gateRows, offset, apeOffset });
      } else {
        terms.push({ kv: state.previousKv, gate: state.previousGate, offset: row * width, apeOffset });
      }
    }
  }
  const ownHalf = overlaps ? width : 0;
  for (let row = 0; row < ratio; row++) {
    const offset = (index * ratio + row) * projected + ownHalf;
    terms.push({ kv: kvRows, gate: gateRows, offset, apeOffset: row * projected + ownHalf });
  }
  return terms;
}

/** Per channel: sum of kv weighted by the softmax of gate + position bias over the terms. */
function poolTerms(terms: readonly Term[], ape: Float32Array, width: number): Float32Array {
  const pooled = new Float32Array(width);
  const scores = new Float64Array(terms.length);
  for (let channel = 0; channel < width; channel++) {
    let max = Number.NEGATIVE_INFINITY;
    for (let i = 0; i < terms.length; i++) {
      scores[i] = terms[i].gate[terms[i].offset + channel] + ape[terms[i].apeOffset + channel];
      if (scores[i] > max) max = scores[i];
    }
    let weightSum = 0;
    let sum = 0;
    for (let i = 0; i < terms.length; i++) {
      const weight = Math.exp(scores[i] - max);
      weightSum += weight;
      sum += weight * terms[i].kv[terms[i].offset + channel];
    }
    pooled[channel] = sum / weightSum;
  }
  return pooled;
}

/** `head` then `tail`, fresh. */
export function joinRows(head: Float32Array, tail: Float32Array): Float32Array {
  const joined = new Float32Array(head.length + tail.length);
  joined.set(head);
  joined.set(tail, head.length);
  return joined;
}
