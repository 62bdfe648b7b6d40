// The attention state of one sequence on the CPU backend. Everything is allocated at creation. A forward pass writes
// only places that the state before it does not read, so a pass that fails leaves the state as it was:
// - window rows go into a ring that is longer than the window by a whole batch;
// - compressed entries go behind those that are valid;
// - unfinished windows have two slots each: a pass that closes a window writes the other one, and `advance` flips.
import type { ModelSpec } from "../../model/model-spec.ts";
import { type CompressorSizes, kvRingRows, type LayerKvSizes, layerKvSizes } from "../../plan/kv-size.ts";
import { kvSectionPlace } from "../kv-snapshot.ts";
import { KvStateBase } from "../kv-state-base.ts";
import { residentFloats } from "./resident-array.ts";

/** Raw projections of an unfinished window, and where windows overlap the a halves of the last finished one. */
export interface PendingSlot {
  kv: Float32Array; // [ratio, projected]
  gate: Float32Array; // [ratio, projected]
  previousKv: Float32Array; // [ratio, width], or empty
  previousGate: Float32Array;
}

/** State of one compressor. With n tokens seen, floor(n/ratio) entries and n mod ratio pending rows are valid. */
export interface CompressorCache {
  ratio: number;
  /** Width of an entry, and columns of a raw projection (twice that where windows overlap). */
  width: number;
  projected: number;
  entries: Float32Array; // [floor(capacity/ratio), width]
  slots: [PendingSlot, PendingSlot];
  /** Which slot is valid now. */
  current: 0 | 1;
}

/** State of one layer. */
export interface LayerCache {
  ring: Float32Array; // [ringRows, headDim]: the row of position p at p % ringRows
  compressor?: CompressorCache;
  indexer?: CompressorCache;
}

/** The slot that a pass over `count` tokens from `start` on writes. */
export function nextSlot(cache: CompressorCache, start: number, count: number): 0 | 1 {
  const closesWindow = (start % cache.ratio) + count >= cache.ratio;
  return closesWindow ? ((1 - cache.current) as 0 | 1) : cache.current;
}

/** The CPU backend's `KvState`. */
export class CpuKv extends KvStateBase {
  readonly bytes: number;
  readonly ringRows: number;
  readonly layers: readonly LayerCache[];
  readonly #onClose: (state: CpuKv) => void;

  /** `onClose` is called once, when the state is closed. */
  constructor(
    spec: ModelSpec,
    capacityTokens: number,
    maxBatchTokens: number,
    onClose: (state: CpuKv) => void,
  ) {
    super(spec, capacityTokens);
    this.#onClose = onClose;
    this.ringRows = kvRingRows(spec, capacityTokens, maxBatchTokens);
    this.layers = spec.layers.map((layer) =>
      allocateLayer(layerKvSizes(spec, layer, capacityTokens, maxBatchTokens)),
    );
    this.bytes = this.layers.reduce((sum, layer) => sum + layerBytes(layer), 0);
  }

  override advance(tokens: number): void {
    for (const { compressor, indexer } of this.layers) {
      for (const cache of [compressor, indexer]) {
        if (cache !== undefined) cache.current = nextSlot(cache, this.lengthTokens, tokens);
      }
    }
    super.advance(tokens);
  }

  protected copySection(name: string, data: Float32Array, inward: boolean, lengthTokens: number): void {
    const { layer: index, indexer, role } = kvSectionPlace(name);
    const layer = this.layers[index];
    if (role === "window") {
      this.#copyWindow(layer.ring, data, inward, lengthTokens);
      return;
    }
    const own = indexer ? layer.indexer! : layer.compressor!;
    const slot = own.slots[own.current];
    const place = {
      compressed: own.entries,
      pending_kv: slot.kv,
      pending_gate: slot.gate,
      previous_kv: slot.previousKv,
      previous_gate: slot.previousGate,
    }[role];
    if (inward) place.set(data);
    else data.set(place.subarray(0, data.length));
  }

  protected release(): void {
    this.#onClose(this);
  }

  #copyWindow(ring: Float32Array, data: Float32Array, inward: boolean, lengthTokens: number): void {
    const { headDim } = this.spec;
    const rows = data.length / headDim;
    for (let row = 0; row < rows; row++) {
      const at = ((lengthTokens - rows + row) % this.ringRows) * headDim;
      const place = ring.subarray(at, at + headDim);
      const part = data.subarray(row * headDim, (row + 1) * headDim);
      if (inward) place.set(part);
      else part.set(place);
    }
  }
}

function allocateLayer({ ringValues, compressor, indexer }: LayerKvSizes): LayerCache {
  return {
    ring: residentFloats(ringValues),
    compressor: compressor && allocateCompressor(compressor),
    indexer: indexer && allocateCompressor(indexer),
  };
}

function allocateCompressor({
  ratio,
  width,
  projected,
  entryValues,
  slot,
}: CompressorSizes): CompressorCache {
  const newSlot = (): PendingSlot => ({
    kv: residentFloats(slot.kvValues),
    gate: residentFloats(slot.gateValues),
    previousKv: residentFloats(slot.previousKvValues),
    previousGate: residentFloats(slot.previousGateValues),
  });
  const entries = residentFloats(entryValues);
  return { ratio, width, projected, entries, slots: [newSlot(), newSlot()], current: 0 };
}

function layerBytes({ ring, compressor, indexer }: LayerCache): number {
  let bytes = ring.byteLength;
  for (const cache of [compressor, indexer]) {
    if (cache === undefined) continue;
    bytes += cache.entries.byteLength;
    for (const slot of cache.slots) {
      for (const array of Object.values(slot)) bytes += (array as Float32Array).byteLength;
    }
  }
  return bytes;
}
