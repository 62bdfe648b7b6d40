// Carries a weight plan out: reads the file once from front to back and writes every matrix straight into its final
// layout in one arena.

import type { NativeKernels, WeightArena, WeightMatrix, Workspace } from "../backend/native-kernels.ts";
import { ggmlType, rowBytes } from "../blocks/ggml-types.ts";
import { blockFormat } from "../blocks/registry.ts";
import { CancelledError, Ds4Error, MemoryError, UnsupportedModelError } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import { formatBytes } from "../core/units.ts";
import type { GgufFile, TensorInfo } from "../gguf/gguf-file.ts";
import type { BoundModel } from "../model/weights.ts";
import { stagingBytes } from "../plan/staging-size.ts";
import {
  PANEL_ROWS,
  type PlacedMatrix,
  planWeights,
  valueCount,
  type WeightPlan,
} from "../plan/weight-layout.ts";

/** Options of `loadWeights`. */
export interface LoadOptions {
  onProgress?: ProgressListener;
  /** Checked between pieces of the staging buffer's size. */
  signal?: { readonly aborted: boolean };
}

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
 * Loads all weights of `model`. Throws `unsupported-type` or `unsupported-model` before anything is allocated, `memory`
 * when the arena is refused, `cancelled`, and the file's read errors; nothing stays allocated on failure.
 */
export function loadWeights(
  kernels: NativeKernels,
  workspace: Workspace,
  file: GgufFile,
  model: BoundModel,
  options: LoadOptions = {},
): ResidentWeights {
  const plan = planWeights(model);
  const indexes = new Map(plan.indexes.map((tensor) => [tensor.name, readIndexes(file, tensor, model)]));
  const vectors = new Map(plan.vectors.map((tensor) => [tensor.name, readVector(file, tensor)]));
  const arena = allocate(kernels, file, plan.arenaBytes);
  try {
    const matrices = new Map<string, WeightMatrix>();
    const loader = new MatrixLoader(workspace, file, plan, options);
    for (const placed of plan.matrices) {
      const { tensor, offsetBytes, slices, rows, cols } = placed;
      const typeId = ggmlType(tensor.type).id;
      const matrix = new kernels.WeightMatrix(arena, offsetBytes, typeId, slices, rows, cols);
      loader.load(placed, matrix);
      matrices.set(tensor.name, matrix);
    }
    return new Resident(plan, arena, matrices, vectors, indexes);
  } catch (error) {
    arena.close();
    throw error;
  }
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
    return found(this.#matrices.get(tensor.name), tensor);
  }

  floats(tensor: TensorInfo): Float32Array {
    return found(this.#vectors.get(tensor.name), tensor);
  }

  ints(tensor: TensorInfo): Int32Array {
    return found(this.#indexes.get(tensor.name), tensor);
  }

  close(): void {
    this.#matrices.clear();
    this.#arena.close();
  }
}

function found<Value>(value: Value | undefined, tensor: TensorInfo): Value {
  if (value === undefined) throw new Ds4Error("session", `the weights of "${tensor.name}" are not loaded`);
  return value;
}

/** Reads matrices through one staging buffer and reports progress over all of them. */
class MatrixLoader {
  readonly #workspace: Workspace;
  readonly #file: GgufFile;
  readonly #options: LoadOptions;
  readonly #staging: Uint8Array;
  readonly #totalBytes: number;
  #doneBytes = 0;

  constructor(workspace: Workspace, file: GgufFile, plan: WeightPlan, options: LoadOptions) {
    this.#workspace = workspace;
    this.#file = file;
    this.#options = options;
    this.#staging = new Uint8Array(stagingBytes(plan));
    this.#totalBytes = plan.matrices.reduce((sum, { tensor }) => sum + tensor.bytes, 0);
  }

  load({ tensor, slices, rows, cols }: PlacedMatrix, matrix: WeightMatrix): void {
    const bytesPerRow = rowBytes(tensor.type, cols);
    const panelsPerPiece = Math.floor(this.#staging.length / (PANEL_ROWS * bytesPerRow));
    const rowsPerPiece = panelsPerPiece * PANEL_ROWS;
    for (let slice = 0; slice < slices; slice++) {
      for (let row = 0; row < rows; row += rowsPerPiece) {
        if (this.#options.signal?.aborted) throw new CancelledError("loading was cancelled");
        const count = Math.min(rowsPerPiece, rows - row);
        const piece = this.#staging.subarray(0, count * bytesPerRow);
        this.#file.readTensorInto(tensor, piece, (slice * rows + row) * bytesPerRow);
        matrix.packRows(this.#workspace, slice, row, count, piece);
        this.#report(piece.length, tensor.name);
      }
    }
  }

  #report(bytes: number, detail: string): void {
    this.#doneBytes += bytes;
    const total = this.#totalBytes;
    this.#options.onProgress?.({ label: "load", done: this.#doneBytes, total, unit: "bytes", detail });
  }
}

function allocate(kernels: NativeKernels, file: GgufFile, bytes: number): WeightArena {
  try {
    return new kernels.WeightArena(bytes);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new MemoryError(
      `${file.name}: no memory for ${formatBytes(bytes)} of weights: ${reason}`,
      bytes,
      Number.NaN,
    );
  }
}

function readVector(file: GgufFile, tensor: TensorInfo): Float32Array {
  const values = new Float32Array(valueCount(tensor));
  blockFormat(tensor.type).decode(file.readTensor(tensor), 0, values, 0, values.length);
  return values;
}

/** A routing table [vocab, used], every entry an expert that exists. */
function readIndexes(file: GgufFile, tensor: TensorInfo, model: BoundModel): Int32Array {
  const bytes = file.readTensor(tensor);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values = Int32Array.from({ length: valueCount(tensor) }, (_, i) => view.getInt32(4 * i, true));
  const { expertCount } = model.spec;
  const wrong = values.findIndex((expert) => expert < 0 || expert >= expertCount);
  if (wrong < 0) return values;
  throw new UnsupportedModelError(
    `${file.name}: tensor "${tensor.name}": token ${Math.floor(wrong / tensor.dims[0])} routes to expert ` +
      `${values[wrong]}, expected 0..${expertCount - 1}`,
  );
}
