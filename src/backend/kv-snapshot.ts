// The backend-independent form of a KV state: named float32 sections in logical order. Written by one
// backend, readable by another. The bytes on disk are `kv-snapshot-codec.ts`'s business.
import { Ds4Error } from "../core/errors.ts";
import type { LayerSpec, ModelSpec } from "../model/model-spec.ts";

/**
 * One named array, row-major. Names, with L the layer and n the length in tokens:
 * - `L.window` [min(n, slidingWindow), headDim]: key/value rows after norm and rotation, oldest first;
 * - `L.compressed` [floor(n / ratio), headDim]: compressed entries, normed and rotated;
 * - `L.pending_kv`, `L.pending_gate` [n mod ratio, W]: raw projections of the unfinished window (gate without
 *   ape), W = headDim at ratio 128 and 2*headDim at ratio 4;
 * - `L.previous_kv`, `L.previous_gate` [4 or 0, headDim]: ratio 4 only, the a halves of the last finished window;
 * - `L.indexer_compressed` and `L.indexer_pending_kv`, … : the same for the indexer with its own width.
 */
export interface KvSection {
  name: string;
  shape: readonly number[];
  data: Float32Array;
}

/** A whole KV state. */
export interface KvSnapshot {
  lengthTokens: number;
  /** Identifies the model shape the state belongs to: see `kvShapeKey`. */
  shapeKey: string;
  sections: KvSection[];
}

/** Name and shape of a section, without its data. */
export type KvSectionShape = Pick<KvSection, "name" | "shape">;

/** What two models must share for one to read the other's state. Equal for all quantizations of one model. */
export function kvShapeKey(spec: ModelSpec): string {
  const ratios = spec.layers.map((layer) => layer.compressRatio).join(",");
  return [
    `${spec.architecture} vocab=${spec.vocabSize} hidden=${spec.hiddenSize} head=${spec.headDim}`,
    `rope=${spec.rope.dims} window=${spec.slidingWindow} indexer=${spec.indexerHeadDim} ratios=${ratios}`,
  ].join(" ");
}

/** What a section holds: `indexer` tells the indexer's compressor from the layer's own; a window has neither. */
export interface KvSectionPlace {
  layer: number;
  indexer: boolean;
  role: KvSectionRole;
}

/** See `KvSection`. */
export type KvSectionRole =
  | "window"
  | "compressed"
  | "pending_kv"
  | "pending_gate"
  | "previous_kv"
  | "previous_gate";

/** The place of one of the names of `kvSectionShapes`. */
export function kvSectionPlace(name: string): KvSectionPlace {
  const [layer, kind] = name.split(".");
  const role = kind.replace("indexer_", "");
  return { layer: Number(layer), indexer: role !== kind, role: role as KvSectionRole };
}

/** The sections of a state of `lengthTokens` tokens, in the order of a snapshot: by layer, as listed at `KvSection`. */
export function kvSectionShapes(spec: ModelSpec, lengthTokens: number): KvSectionShape[] {
  return spec.layers.flatMap((layer) => {
    const window = Math.min(lengthTokens, spec.slidingWindow);
    const shapes: KvSectionShape[] = [{ name: `${layer.index}.window`, shape: [window, spec.headDim] }];
    if (layer.compressRatio === 0) return shapes;
    shapes.push(...compressorShapes(layer, `${layer.index}.`, spec.headDim, lengthTokens));
    if (!layer.hasIndexer) return shapes;
    return [
      ...shapes,
      ...compressorShapes(layer, `${layer.index}.indexer_`, spec.indexerHeadDim, lengthTokens),
    ];
  });
}

function compressorShapes(layer: LayerSpec, prefix: string, width: number, tokens: number): KvSectionShape[] {
  const ratio = layer.compressRatio;
  const overlaps = ratio === 4;
  const pending = [tokens % ratio, overlaps ? 2 * width : width];
  const shapes = [
    { name: `${prefix}compressed`, shape: [Math.floor(tokens / ratio), width] },
    { name: `${prefix}pending_kv`, shape: pending },
    { name: `${prefix}pending_gate`, shape: pending },
  ];
  if (!overlaps) return shapes;
  const previous = [tokens >= ratio ? ratio : 0, width];
  return [
    ...shapes,
    { name: `${prefix}previous_kv`, shape: previous },
    { name: `${prefix}previous_gate`, shape: previous },
  ];
}

/**
 * Checks that a snapshot can be restored into a state of `capacityTokens` tokens of this model: shape key, length,
 * and every section's presence, shape and size. Throws `session` naming what differs. Backends call it first, so
 * that a refused snapshot leaves the state unchanged.
 */
export function checkKvSnapshot(spec: ModelSpec, capacityTokens: number, snapshot: KvSnapshot): void {
  const refuse = (text: string) => new Ds4Error("session", `cannot restore this KV snapshot: ${text}`);
  const key = kvShapeKey(spec);
  if (snapshot.shapeKey !== key) {
    throw refuse(`it belongs to a model of shape "${snapshot.shapeKey}", this one is "${key}"`);
  }
  const { lengthTokens } = snapshot;
  if (!Number.isSafeInteger(lengthTokens) || lengthTokens < 0 || lengthTokens > capacityTokens) {
    throw refuse(`it holds ${lengthTokens} tokens, this state has room for ${capacityTokens}`);
  }
  const sections = new Map(snapshot.sections.map((section) => [section.name, section]));
  for (const { name, shape } of kvSectionShapes(spec, lengthTokens)) {
    const section = sections.get(name);
    if (section === undefined) throw refuse(`section "${name}" is missing`);
    const values = shape[0] * shape[1];
    if (section.shape.join() !== shape.join() || section.data.length !== values) {
      const found = `[${section.shape.join(", ")}] with ${section.data.length} values`;
      throw refuse(`section "${name}" should be [${shape.join(", ")}], it is ${found}`);
    }
  }
}
