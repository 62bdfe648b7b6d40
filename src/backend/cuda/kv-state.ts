// The attention state of one sequence on the device: window ring and compressed entries in one or two halves per value
// (half-rows.ts), unfinished windows' raw projections in float32. Allocated once; as on the CPU, a pass writes only places that the state before it does not
// read, so a pass that fails leaves the state as it was.
import type { LayerSpec, ModelSpec } from "../../model/model-spec.ts";
import { type CompressorSizes, kvRingRows, layerKvSizes, pendingValues } from "../../plan/kv-size.ts";
import { type KvSection, type KvSectionRole, kvSectionPlace } from "../kv-snapshot.ts";
import { KvStateBase } from "../kv-state-base.ts";
import { type DeviceBuffer, DeviceMemory } from "./device-memory.ts";
import { floatsOfRows, HALF_BYTES, type RowParts, rowsOfFloats } from "./half-rows.ts";
import { compressorSlotValues, nextSlots } from "./sequence-steps.ts";
import type { DeviceStream } from "./stream.ts";

const FLOAT_BYTES = 4;

/** State of one compressor. With n tokens seen, floor(n/ratio) entries and n mod ratio pending rows are valid. */
export interface CompressorState {
  ratio: number;
  width: number;
  projected: number;
  entries: DeviceBuffer; // [floor(capacity/ratio), parts * width]
  /** Two slots: kv [ratio, projected], gate, and where windows overlap previousKv [ratio, width], previousGate. */
  slots: DeviceBuffer;
  slotBit: number;
}

/** State of one layer. */
export interface LayerState {
  ring: DeviceBuffer; // [ringRows, parts * headDim]: the row of position p at p % ringRows
  compressor?: CompressorState;
  indexer?: CompressorState;
}

let nextId = 0;

/** What a state needs of its backend. */
export interface KvOwner {
  spec: ModelSpec;
  stream: DeviceStream;
  maxBatchTokens: number;
  rowParts: RowParts;
  /** Called once, when the state is closed. */
  onClose(state: CudaKv): void;
}

/** The compression ratios of a model, ascending. The bit of a ratio's compressors in `slots` is its index. */
export function slotRatios(spec: ModelSpec): number[] {
  const ratios = spec.layers.map((layer) => layer.compressRatio).filter((ratio) => ratio > 0);
  return [...new Set(ratios)].sort((a, b) => a - b);
}

/** The CUDA backend's `KvState`. */
export class CudaKv extends KvStateBase {
  /** Of no other state of this process. */
  readonly id = nextId++;
  readonly bytes: number;
  readonly ringRows: number;
  readonly rowParts: RowParts;
  readonly layers: readonly LayerState[];
  readonly #owner: KvOwner;
  readonly #memory: DeviceMemory;
  readonly #ratios: readonly number[];
  #slots = 0;

  /** Throws `memory` or `cuda`; nothing stays allocated then. */
  constructor(owner: KvOwner, capacityTokens: number) {
    const { spec, stream, maxBatchTokens, rowParts } = owner;
    super(spec, capacityTokens);
    this.#owner = owner;
    this.rowParts = rowParts;
    this.ringRows = kvRingRows(spec, capacityTokens, maxBatchTokens);
    this.#ratios = slotRatios(spec);
    this.#memory = new DeviceMemory(stream.driver);
    const sizes: Record<string, number> = {};
    for (const layer of spec.layers) Object.assign(sizes, layerSizes(owner, layer, capacityTokens));
    const parts = this.#memory.allocateParts("kv", sizes);
    this.bytes = this.#memory.bytes;
    this.layers = spec.layers.map((layer) => this.#layerState(layer, parts));
    try {
      // Kernels may load rows beyond the valid ones and weigh them with zero: they must be numbers.
      for (const buffer of Object.values(parts)) stream.clear(buffer);
      stream.synchronize();
    } catch (error) {
      this.#memory.closeAfterFailure();
      throw error;
    }
  }

  /** Bit i: which slot of the compressors with slot bit i is valid. */
  get slots(): number {
    return this.#slots;
  }

  override advance(tokens: number): void {
    this.#ratios.forEach((ratio, bit) => {
      this.#slots = nextSlots(this.#slots, bit, ratio, this.lengthTokens, tokens);
    });
    super.advance(tokens);
  }

  protected override copyIn(sections: readonly KvSection[], lengthTokens: number): void {
    super.copyIn(sections, lengthTokens);
    this.#owner.stream.synchronize();
  }

  protected release(): void {
    this.#owner.onClose(this);
    this.#memory.close();
  }

  #layerState(
    { index, compressRatio: ratio, hasIndexer }: LayerSpec,
    parts: Record<string, DeviceBuffer>,
  ): LayerState {
    const { spec } = this;
    const { maxBatchTokens } = this.#owner;
    const sizes = layerKvSizes(spec, spec.layers[index], this.capacityTokens, maxBatchTokens);
    const state = (kind: string, of: CompressorSizes | undefined): CompressorState | undefined =>
      of && {
        ...{ ratio, width: of.width, projected: of.projected, slotBit: this.#ratios.indexOf(ratio) },
        ...{ entries: parts[`${index}.${kind}.entries`], slots: parts[`${index}.${kind}.slots`] },
      };
    return {
      ring: parts[`${index}.ring`],
      compressor: state("compressor", sizes.compressor),
      indexer: hasIndexer ? state("indexer", sizes.indexer) : undefined,
    };
  }

  protected copySection(name: string, data: Float32Array, inward: boolean, lengthTokens: number): void {
    const { layer: index, indexer, role } = kvSectionPlace(name);
    const layer = this.layers[index];
    if (role === "window") {
      this.#copyWindow(layer.ring, data, inward, lengthTokens);
      return;
    }
    const own = indexer ? layer.indexer! : layer.compressor!;
    if (role === "compressed") this.#copyRows(own.entries, own.width, data, inward);
    else this.#copyFloats(pendingPart(own, role, this.#slots), data, inward);
  }

  #copyWindow(ring: DeviceBuffer, data: Float32Array, inward: boolean, lengthTokens: number): void {
    const { headDim } = this.spec;
    const rows = data.length / headDim;
    for (let row = 0; row < rows; ) {
      const at = (lengthTokens - rows + row) % this.ringRows;
      const count = Math.min(rows - row, this.ringRows - at);
      const rowBytes = HALF_BYTES * this.rowParts * headDim;
      const place = ring.slice(at * rowBytes, count * rowBytes);
      this.#copyRows(place, headDim, data.subarray(row * headDim, (row + count) * headDim), inward);
      row += count;
    }
  }

  #copyRows(place: DeviceBuffer, width: number, data: Float32Array, inward: boolean): void {
    const { stream } = this.#owner;
    const { rowParts } = this;
    if (inward) stream.write(place, rowsOfFloats(data, width, rowParts));
    else data.set(floatsOfRows(stream.read(place, new Uint16Array(rowParts * data.length)), width, rowParts));
  }

  #copyFloats(place: DeviceBuffer, data: Float32Array, inward: boolean): void {
    const { stream } = this.#owner;
    if (inward) stream.write(place, data);
    else stream.read(place, data);
  }
}

function layerSizes(
  { spec, maxBatchTokens, rowParts }: KvOwner,
  layer: LayerSpec,
  capacityTokens: number,
): Record<string, number> {
  const { ringValues, compressor, indexer } = layerKvSizes(spec, layer, capacityTokens, maxBatchTokens);
  const sizes: Record<string, number> = { [`${layer.index}.ring`]: HALF_BYTES * rowParts * ringValues };
  for (const [kind, of] of Object.entries({ compressor, indexer })) {
    if (of === undefined) continue;
    sizes[`${layer.index}.${kind}.entries`] = HALF_BYTES * rowParts * of.entryValues;
    sizes[`${layer.index}.${kind}.slots`] = FLOAT_BYTES * pendingValues(of);
  }
  return sizes;
}

type PendingRole = Exclude<KvSectionRole, "window" | "compressed">;

/** Where a role's rows begin in the valid slot. */
function pendingPart(own: CompressorState, role: PendingRole, slots: number): DeviceBuffer {
  const { ratio, width, projected, slotBit } = own;
  const current = (slots >> slotBit) & 1;
  const offsets: Record<PendingRole, number> = {
    pending_kv: 0,
    pending_gate: ratio * projected,
    previous_kv: 2 * ratio * projected,
    previous_gate: 2 * ratio * projected + ratio * width,
  };
  const values = current * compressorSlotValues(ratio, width, projected) + offsets[role];
  return own.slots.slice(FLOAT_BYTES * values);
}
