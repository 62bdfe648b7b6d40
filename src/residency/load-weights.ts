// Carries a weight plan out: reads the file once from front to back and writes every matrix straight into its final
// layout in one arena.

import type { NativeKernels, WeightArena, WeightMatrix, Workspace } from "../backend/native-kernels.ts";
import { ggmlType } from "../blocks/ggml-types.ts";
import { Ds4Error, MemoryError } from "../core/errors.ts";
import { formatBytes } from "../core/units.ts";
import type { GgufFile, TensorInfo } from "../gguf/gguf-file.ts";
import type { BoundModel } from "../model/weights.ts";
import { type PlacedMatrix, planWeights, type WeightPlan } from "../plan/weight-layout.ts";
import { type FillOptions, fillMatrices } from "./fill-matrices.ts";
import type { Read } from "./read-order.ts";
import { readIndexes, readVector } from "./small-tensors.ts";

/** Options of `loadWeights`. */
export type LoadOptions = FillOptions;

/** A model's weights in memory. Every getter throws when asked for a tensor that is not part of the model. */
export interface ResidentWeights {
  readonly plan: WeightPlan;
  /** Bytes held: arena, vectors and tables. */
  readonly bytes: number;
  matrix(tensor: TensorInfo): WeightMatrix;
  floats(tensor: TensorInfo): Float32Array;
  ints(tensor: TensorInfo): Int32Array;
  /** Frees the arena; matrices must not be used afterwards. */
  close(): void;
}

/**
 * Loads all weights of `model`. The arena, by far the largest region, is taken first. Throws `unsupported-type` or
 * `unsupported-model` before anything is allocated, `memory` when memory is refused, `cancelled`, and `io`; nothing
 * stays allocated on failure.
 */
export function loadWeights(
  kernels: NativeKernels,
  workspace: Workspace,
  file: GgufFile,
  model: BoundModel,
  options: LoadOptions = {},
): ResidentWeights {
  const plan = planWeights(model);
  const arena = allocateArena(kernels, file, plan.arenaBytes, "weights");
  try {
    const indexes = new Map(plan.indexes.map((tensor) => [tensor.name, readIndexes(file, tensor, model)]));
    const vectors = new Map(plan.vectors.map((tensor) => [tensor.name, readVector(file, tensor)]));
    const matrices = new Map(
      plan.matrices.map((placed) => [placed.tensor.name, place(kernels, arena, placed)]),
    );
    const targetsOf = ({ pieces }: Read) =>
      pieces.map(({ placed, slice, rowBegin }) => {
        return { matrix: loadedValue(matrices, placed.tensor.name), slice, rowBegin };
      });
    fillMatrices({ kernels, workspace, file, plan, targetsOf }, options);
    return new Resident(plan, arena, matrices, vectors, indexes);
  } catch (error) {
    arena.close();
    throw error;
  }
}

function place(kernels: NativeKernels, arena: WeightArena, placed: PlacedMatrix): WeightMatrix {
  const { tensor, offsetBytes, slices, rows, cols } = placed;
  return new kernels.WeightMatrix(arena, offsetBytes, ggmlType(tensor.type).id, slices, rows, cols);
}

class Resident implements ResidentWeights {
  readonly plan: WeightPlan;
  readonly bytes: number;
  readonly #arena: WeightArena;
  readonly #matrices: Map<string, WeightMatrix>;
  readonly #vectors: ReadonlyMap<string, Float32Array>;
  readonly #indexes: ReadonlyMap<string, Int32Array>;

  constructor(
    plan: WeightPlan,
    arena: WeightArena,
    matrices: Map<string, WeightMatrix>,
    vectors: ReadonlyMap<string, Float32Array>,
    indexes: ReadonlyMap<string, Int32Array>,
  ) {
    this.plan = plan;
    this.bytes = plan.arenaBytes + plan.vectorBytes;
    this.#arena = arena;
    this.#matrices = matrices;
    this.#vectors = vectors;
    this.#indexes = indexes;
  }

  matrix(tensor: TensorInfo): WeightMatrix {
    return loadedValue(this.#matrices, tensor.name);
  }

  floats(tensor: TensorInfo): Float32Array {
    return loadedValue(this.#vectors, tensor.name);
  }

  ints(tensor: TensorInfo): Int32Array {
    return loadedValue(this.#indexes, tensor.name);
  }

  close(): void {
    this.#matrices.clear();
    this.#arena.close();
  }
}

/** The value of a tensor. Throws `session` when it is not part of the model that was loaded. */
export function loadedValue<Value>(values: ReadonlyMap<string, Value>, tensorName: string): Value {
  const value = values.get(tensorName);
  if (value === undefined) {
    throw new Ds4Error("session", `the weights of "${tensorName}" are not loaded`);
  }
  return value;
}

/** An arena of `bytes` for `what` of `file`. Throws `memory`. */
export function allocateArena(
  kernels: NativeKernels,
  file: GgufFile,
  bytes: number,
  what: string,
): WeightArena {
  try {
    return new kernels.WeightArena(bytes);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new MemoryError(
      `${file.name}: no memory for ${formatBytes(bytes)} of ${what}: ${reason}`,
      bytes,
      Number.NaN,
    );
  }
}
