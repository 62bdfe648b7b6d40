// Carries a weight plan out on the device: file → packed on the CPU into staging → copied to its place. Bytes, layout
// and order are those of the CPU's arena.
import { ggmlType, rowBytes } from "../../blocks/ggml-types.ts";
import { CancelledError } from "../../core/errors.ts";
import { alignUp } from "../../core/units.ts";
import type { GgufFile, TensorInfo } from "../../gguf/gguf-file.ts";
import type { BoundModel } from "../../model/weights.ts";
import { longestReadBytes, UPLOAD_ARENAS, uploadArenaBytes } from "../../plan/staging-size.ts";
import { PANEL_ROWS, planWeights, type WeightPlan } from "../../plan/weight-layout.ts";
import { type LoadOptions, loadedValue } from "../../residency/load-weights.ts";
import { type Piece, planReads } from "../../residency/read-order.ts";
import { readIndexes, readVector } from "../../residency/small-tensors.ts";
import { openWeightBytes } from "../../residency/weight-bytes.ts";
import type { WeightSource } from "../layer-weights.ts";
import type { NativeKernels, Workspace } from "../native-kernels.ts";
import { DEVICE_ALIGNMENT_BYTES, type DeviceBuffer, DeviceMemory, partsBytes } from "./device-memory.ts";
import { type DeviceMatrix, placedMatrix } from "./matrix.ts";
import type { DeviceStream } from "./stream.ts";
import { UploadStaging } from "./upload-staging.ts";

/** What loading works with. */
export interface WeightLoader {
  kernels: NativeKernels;
  /** Threads that pack. */
  workspace: Workspace;
  stream: DeviceStream;
}

/** A model's weights on the device. */
export interface DeviceWeights extends WeightSource<DeviceMatrix, DeviceBuffer, DeviceBuffer> {
  readonly plan: WeightPlan;
  /** Bytes held on the device. */
  readonly bytes: number;
  close(): void;
}

/**
 * Loads all weights of `model`; the arena, by far the largest region, is taken first. Throws `unsupported-type` or
 * `unsupported-model` before anything is allocated, `memory`, `cancelled`, `io` and `cuda`; nothing stays allocated then.
 */
export function loadDeviceWeights(
  loader: WeightLoader,
  file: GgufFile,
  model: BoundModel,
  options: LoadOptions = {},
): DeviceWeights {
  const plan = planWeights(model);
  const memory = new DeviceMemory(loader.stream.driver);
  try {
    const arena = memory.allocate("weights", plan.arenaBytes);
    const small = loadSmallTensors(loader.stream, memory, file, model, plan);
    const matrices = new Map(
      plan.matrices.map((placed) => [placed.tensor.name, placedMatrix(placed, arena)]),
    );
    fillArena(loader, file, plan, matrices, options);
    return new ResidentOnDevice(plan, memory, matrices, small);
  } catch (error) {
    memory.closeAfterFailure();
    throw error;
  }
}

class ResidentOnDevice implements DeviceWeights {
  readonly plan: WeightPlan;
  readonly bytes: number;
  readonly #memory: DeviceMemory;
  readonly #matrices: ReadonlyMap<string, DeviceMatrix>;
  readonly #small: ReadonlyMap<string, DeviceBuffer>;

  constructor(
    plan: WeightPlan,
    memory: DeviceMemory,
    matrices: ReadonlyMap<string, DeviceMatrix>,
    small: ReadonlyMap<string, DeviceBuffer>,
  ) {
    this.plan = plan;
    this.bytes = memory.bytes;
    this.#memory = memory;
    this.#matrices = matrices;
    this.#small = small;
  }

  matrix(tensor: TensorInfo): DeviceMatrix {
    return loadedValue(this.#matrices, tensor.name);
  }

  floats(tensor: TensorInfo): DeviceBuffer {
    return loadedValue(this.#small, tensor.name);
  }

  ints(tensor: TensorInfo): DeviceBuffer {
    return loadedValue(this.#small, tensor.name);
  }

  close(): void {
    this.#memory.close();
  }
}

/** Vectors and tables, read whole, in one allocation. */
function loadSmallTensors(
  stream: DeviceStream,
  memory: DeviceMemory,
  file: GgufFile,
  model: BoundModel,
  plan: WeightPlan,
): Map<string, DeviceBuffer> {
  const values = new Map<string, Float32Array | Int32Array>([
    ...plan.vectors.map((tensor) => [tensor.name, readVector(file, tensor)] as const),
    ...plan.indexes.map((tensor) => [tensor.name, readIndexes(file, tensor, model)] as const),
  ]);
  const sizes = Object.fromEntries([...values].map(([name, array]) => [name, array.byteLength]));
  const all = memory.allocate("vectors", partsBytes(sizes));
  const buffers = new Map<string, DeviceBuffer>();
  let offset = 0;
  for (const [name, array] of values) {
    const buffer = all.slice(offset, array.byteLength);
    offset += alignUp(array.byteLength, DEVICE_ALIGNMENT_BYTES);
    stream.enqueueWrite(buffer, array);
    buffers.set(name, buffer);
  }
  stream.synchronize();
  return buffers;
}

/** Packs and copies every matrix while the following ones are being read. */
function fillArena(
  loader: WeightLoader,
  file: GgufFile,
  plan: WeightPlan,
  matrices: ReadonlyMap<string, DeviceMatrix>,
  options: LoadOptions,
): void {
  const { signal, onProgress, faults } = options;
  const longestBytes = longestReadBytes(plan);
  const reads = planReads(plan, longestBytes);
  const total = plan.matrices.reduce((sum, { tensor }) => sum + tensor.bytes, 0);
  const bytes = openWeightBytes(loader.kernels, file, reads, longestBytes, faults);
  let staging: UploadStaging | undefined;
  let done = 0;
  try {
    staging = new UploadStaging(loader.kernels, loader.stream, uploadArenaBytes(plan), UPLOAD_ARENAS);
    for (const read of reads) {
      for (const piece of read.pieces) {
        if (signal?.aborted) throw new CancelledError("loading was cancelled");
        const { name } = piece.placed.tensor;
        const target = loadedValue(matrices, name);
        uploadPiece(loader, staging, piece, target, bytes.pieceBytes(read, piece));
        done += piece.bytes;
        onProgress?.({ label: "load", done, total, unit: "bytes", detail: name });
      }
    }
    loader.stream.synchronize();
  } finally {
    staging?.close();
    bytes.close();
  }
}

function uploadPiece(
  { kernels, workspace }: WeightLoader,
  staging: UploadStaging,
  { slice, rowBegin, rowCount, placed: { tensor, cols } }: Piece,
  target: DeviceMatrix,
  source: Uint8Array,
): void {
  const bytesPerRow = rowBytes(tensor.type, cols);
  const packedBytes = alignUp(rowCount, PANEL_ROWS) * bytesPerRow;
  const place = staging.place(packedBytes);
  const part = new kernels.WeightMatrix(
    place.arena,
    place.offsetBytes,
    ggmlType(tensor.type).id,
    1,
    rowCount,
    cols,
  );
  part.packRows(workspace, 0, 0, rowCount, source);
  staging.upload(place, target.buffer.slice(slice * target.sliceBytes + rowBegin * bytesPerRow, packedBytes));
}
