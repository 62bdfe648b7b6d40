// Differences between a recorded trace and the expected one, per layer. Order within a choice does not matter: expert
// ids and indexer entries are compared as sets.
import type { ModelSpec } from "../../src/model/model-spec.ts";
import type { ArrayReader } from "./safetensors-arrays.ts";

/** Recorded data by `layerN.name`. */
export type TraceRecord = Map<string, Float32Array | Int32Array>;

/** One layer's differences. */
export interface TraceDifference {
  layer: number;
  /** Max |difference|; activations are of the order of 1. */
  attnOut: number;
  moeOut: number;
  streams: number;
  /** Share of tokens whose expert set differs. */
  expertMismatch: number;
  /** Max |difference| of the weights of experts chosen by both. */
  expertWeights: number;
  /** Share of chosen entries that the other did not choose; 0 in layers without an indexer. */
  indexerMismatch: number;
}

/** Compares every layer of the record. */
export function traceDifferences(
  spec: ModelSpec,
  found: TraceRecord,
  expected: ArrayReader,
  tokens: number,
): TraceDifference[] {
  return spec.layers.map(({ index, hasIndexer }) => {
    const ours = (name: string) => {
      const data = found.get(`layer${index}.${name}`);
      if (data === undefined) throw new Error(`the backend traced no ${name} of layer ${index}`);
      return data;
    };
    const theirs = (name: string) => expected(`layer${index}.${name}`);
    const floats = (name: string) => maxDifference(ours(name) as Float32Array, theirs(name) as Float32Array);
    return {
      layer: index,
      attnOut: floats("attn_out"),
      moeOut: floats("moe_out"),
      streams: floats("streams"),
      ...expertDifferences(ours, theirs, tokens),
      indexerMismatch: hasIndexer
        ? choiceMismatch(ours("indexer_topk"), theirs("indexer_topk"), spec.indexerTopK)
        : 0,
    };
  });
}

function expertDifferences(
  ours: (name: string) => ArrayLike<number>,
  theirs: (name: string) => ArrayLike<number>,
  tokens: number,
): Pick<TraceDifference, "expertMismatch" | "expertWeights"> {
  const used = theirs("expert_ids").length / tokens;
  let mismatched = 0;
  let expertWeights = 0;
  for (let token = 0; token < tokens; token++) {
    const expected = weightsById(theirs, token, used);
    const found = weightsById(ours, token, used);
    let missing = 0;
    for (const [expert, weight] of found) {
      const other = expected.get(expert);
      if (other === undefined) missing++;
      else expertWeights = Math.max(expertWeights, Math.abs(weight - other));
    }
    if (missing > 0 || found.size !== expected.size) mismatched++;
  }
  return { expertMismatch: mismatched / tokens, expertWeights };
}

function weightsById(
  data: (name: string) => ArrayLike<number>,
  token: number,
  used: number,
): Map<number, number> {
  const ids = data("expert_ids");
  const weights = data("expert_weights");
  const slots = Array.from({ length: used }, (_, slot) => token * used + slot);
  return new Map(slots.map((slot) => [ids[slot], weights[slot]]));
}

/** Share of our chosen entries (-1 = none) that are missing from theirs; a different count counts as missing too. */
function choiceMismatch(ours: ArrayLike<number>, theirs: ArrayLike<number>, width: number): number {
  let chosen = 0;
  let missing = 0;
  for (let start = 0; start < ours.length; start += width) {
    const row = (data: ArrayLike<number>) =>
      Array.from({ length: width }, (_, i) => data[start + i]).filter((entry) => entry >= 0);
    const expected = new Set(row(theirs));
    const found = row(ours);
    chosen += expected.size;
    missing += found.filter((entry) => !expected.has(entry)).length + Math.abs(found.length - expected.size);
  }
  return chosen === 0 ? 0 : missing / chosen;
}

/** Max |a - b|; not a number when any value is, infinite when the lengths differ. */
export function maxDifference(a: Float32Array, b: Float32Array): number {
  if (a.length !== b.length) return Number.POSITIVE_INFINITY;
  let worst = 0;
  for (let i = 0; i < a.length; i++) worst = Math.max(worst, Math.abs(a[i] - b[i]));
  return worst;
}
