// The backend-independent form of a KV state: named float32 sections in logical order. Written by one
// backend, readable by another.

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
