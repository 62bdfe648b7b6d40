// The attention state of one sequence: per layer the window's rows and the compressors' entries and unfinished
// windows. Everything is allocated at creation; how full it is follows from the length alone.
import type { LayerSpec, ModelSpec } from "../../model/model-spec.ts";
import { compressorWidth } from "../../model/weights.ts";
import { KvStateBase } from "../kv-state-base.ts";

/** State of one compressor. With n tokens seen, floor(n/ratio) entries and n mod ratio pending rows are valid. */
export interface CompressorState {
  ratio: number;
  /** Width of an entry. */
  width: number;
  /** Columns of a raw projection: `width`, or twice that where windows overlap. */
  projected: number;
  overlaps: boolean;
  entries: Float32Array; // [floor(capacity/ratio), width]
  pendingKv: Float32Array; // [ratio, projected]
  pendingGate: Float32Array; // [ratio, projected]
  previousKv: Float32Array; // [ratio, width]: the a halves of the last finished window
  previousGate: Float32Array; // [ratio, width]
}

/** State of one layer. */
export interface LayerState {
  window: Float32Array; // [min(n, slidingWindow), headDim], oldest first
  compressor?: CompressorState;
  indexer?: CompressorState;
}

/** The reference backend's `KvState`. */
export class ReferenceKv extends KvStateBase {
  readonly bytes: number;
  readonly layers: readonly LayerState[];
  /** Arrays by section name; a section's valid values are the first ones of its array. */
  readonly #storage: ReadonlyMap<string, Float32Array>;
  readonly #onClose: (state: ReferenceKv) => void;

  /** `onClose` is called once, when the state is closed. */
  constructor(spec: ModelSpec, capacityTokens: number, onClose: (state: ReferenceKv) => void) {
    super(spec, capacityTokens);
    this.layers = spec.layers.map((layer) => allocateLayer(spec, layer, capacityTokens));
    this.#storage = storageOf(this.layers);
    this.#onClose = onClose;
    this.bytes = [...this.#storage.values()].reduce((total, array) => total + array.byteLength, 0);
  }

  protected copySection(name: string, data: Float32Array, inward: boolean): void {
    const values = this.#storage.get(name)!;
    if (inward) values.set(data);
    else data.set(values.subarray(0, data.length));
  }

  protected release(): void {
    this.#onClose(this);
  }
}

function allocateLayer(spec: ModelSpec, layer: LayerSpec, capacityTokens: number): LayerState {
  const { compressRatio: ratio } = layer;
  return {
    window: new Float32Array(spec.slidingWindow * spec.headDim),
    compressor: ratio === 0 ? undefined : allocateCompressor(spec.headDim, ratio, capacityTokens),
    indexer: layer.hasIndexer ? allocateCompressor(spec.indexerHeadDim, ratio, capacityTokens) : undefined,
  };
}

function allocateCompressor(width: number, ratio: number, capacityTokens: number): CompressorState {
  const projected = compressorWidth(width, ratio);
  const overlaps = projected > width;
  return {
    ratio,
    width,
    projected,
    overlaps,
    entries: new Float32Array(Math.floor(capacityTokens / ratio) * width),
    pendingKv: new Float32Array(ratio * projected),
    pendingGate: new Float32Array(ratio * projected),
    previousKv: new Float32Array(overlaps ? ratio * width : 0),
    previousGate: new Float32Array(overlaps ? ratio * width : 0),
  };
}

function storageOf(layers: readonly LayerState[]): Map<string, Float32Array> {
  const storage = new Map<string, Float32Array>();
  const addCompressor = (prefix: string, state: CompressorState | undefined) => {
    if (state === undefined) return;
    storage.set(`${prefix}compressed`, state.entries);
    storage.set(`${prefix}pending_kv`, state.pendingKv);
    storage.set(`${prefix}pending_gate`, state.pendingGate);
    storage.set(`${prefix}previous_kv`, state.previousKv);
    storage.set(`${prefix}previous_gate`, state.previousGate);
  };
  layers.forEach((layer, index) => {
    storage.set(`${index}.window`, layer.window);
    addCompressor(`${index}.`, layer.compressor);
    addCompressor(`${index}.indexer_`, layer.indexer);
  });
  return storage;
}
