// Carries a weight plan out on the device: file → packed on the CPU into staging → copied to its place. Bytes, layout
// and order are those of the CPU's arena.
import { alignUp } from "../../core/units.ts";
import type { GgufFile, TensorInfo } from "../../gguf/gguf-file.ts";
import type { BoundModel } from "../../model/weights.ts";
import { planWeights, type WeightPlan } from "../../plan/weight-layout.ts";
import { fillMatrices } from "../../residency/fill-matrices.ts";
import { type LoadOptions, loadedValue } from "../../residency/load-weights.ts";
import type { Read } from "../../residency/read-order.ts";
import { readIndexes, readVector } from "../../residency/small-tensors.ts";
import type { WeightSource } from "../layer-weights.ts";
import type { NativeKernels, Workspace } from "../native-kernels.ts";
import { DEVICE_ALIGNMENT_BYTES, type DeviceBuffer, DeviceMemory, partsBytes } from "./device-memory.ts";
import { type DeviceMatrix, placedMatrix } from "./matrix.ts";
import type { DeviceStream } from "./stream.ts";
import { UploadStaging } from "./upload-staging.ts";

/** What loading works with. */
export interface WeightLoader {
  kernels: NativeKernels;
  /** Threads that pack what does not come from files; those that read files pack themselves. */
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
    fillArena(loader, file, plan, arena, options);
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

/** Packs and copies every read while the following ones are being read and packed. */
function fillArena(
  { kernels, workspace, stream }: WeightLoader,
  file: GgufFile,
  plan: WeightPlan,
  arena: DeviceBuffer,
  options: LoadOptions,
): void {
  const staging = new UploadStaging(kernels, stream, file, plan);
  try {
    const targetsOf = (read: Read, index: number) => staging.targetsOf(read, index);
    const onPacked = (read: Read, index: number) => staging.upload(read, index, arena);
    fillMatrices({ kernels, workspace, file, plan, targetsOf, onPacked }, options);
    staging.finish();
  } finally {
    staging.close();
  }
}
