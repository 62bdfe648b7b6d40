// The steps that a pass is made of, as the host code sees them: kernel launches, or for tests anything that does the same.
import type { ModelSpec } from "../../model/model-spec.ts";
import type { CudaContext } from "./context.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { DeviceMatrix } from "./matrix.ts";
import type * as sequence from "./sequence-steps.ts";

/** The int8 form of activations, written by a product for itself and those beside it. */
export interface QuantizedInput {
  readonly buffer: DeviceBuffer;
}

/** Which rows go to which expert, and the experts' intermediate rows. */
export interface ExpertGroups {
  readonly buffer: DeviceBuffer;
}

/** Working memory of the matrix steps, for one pass at a time. */
export interface MatrixWork {
  input: QuantizedInput;
  routing: ExpertGroups;
}

/** The matrices of a mixture of experts. */
export interface ExpertMatrices {
  gate: DeviceMatrix;
  up: DeviceMatrix;
  down: DeviceMatrix;
  sharedGate: DeviceMatrix;
  sharedUp: DeviceMatrix;
  sharedDown: DeviceMatrix;
}

/** Products with weights. Activations are float32, row-major, with the shapes of native-kernels.ts. */
export interface MatrixSteps {
  /** Bytes of the working memory for batches of up to `maxBatchTokens`. */
  workBytes(spec: ModelSpec, maxBatchTokens: number): { input: number; routing: number };
  /** outs[i] [rows, matrices[i].rows] = x [rows, cols] times each matrix. */
  multiply(
    ctx: CudaContext,
    rows: number,
    x: DeviceBuffer,
    cols: number,
    matrices: readonly DeviceMatrix[],
    outs: readonly DeviceBuffer[],
    input: QuantizedInput,
  ): void;
  /** x [rows, groups, cols], out [rows, groups, matrix.rows / groups]. */
  multiplyGroups(
    ctx: CudaContext,
    rows: number,
    groups: number,
    matrix: DeviceMatrix,
    x: DeviceBuffer,
    out: DeviceBuffer,
    input: QuantizedInput,
  ): void;
  /** streams [tokens, copies, cols]: each copy the token's row. */
  embed(
    ctx: CudaContext,
    tokens: number,
    copies: number,
    matrix: DeviceMatrix,
    ids: DeviceBuffer,
    streams: DeviceBuffer,
  ): void;
  /** Groups the slots of ids [tokens, used] by expert ascending, tokens in order. */
  groupByExpert(
    ctx: CudaContext,
    ids: DeviceBuffer,
    tokens: number,
    used: number,
    experts: number,
    routing: ExpertGroups,
  ): void;
  /** h [tokens * used, inner], rows grouped by expert; sharedH [tokens, sharedInner]. */
  expertsUp(
    ctx: CudaContext,
    experts: ExpertMatrices,
    tokens: number,
    used: number,
    limit: number,
    sharedLimit: number,
    x: DeviceBuffer,
    ids: DeviceBuffer,
    routing: ExpertGroups,
    h: DeviceBuffer,
    sharedH: DeviceBuffer,
  ): void;
  /** out [tokens, hidden]. */
  expertsDown(
    ctx: CudaContext,
    experts: ExpertMatrices,
    tokens: number,
    used: number,
    h: DeviceBuffer,
    sharedH: DeviceBuffer,
    weights: DeviceBuffer,
    routing: ExpertGroups,
    out: DeviceBuffer,
  ): void;
}

/** Everything else. */
export type SequenceSteps = Pick<
  typeof sequence,
  | "readStreams"
  | "readHead"
  | "writeStreams"
  | "normRows"
  | "ropeTable"
  | "rotateHeads"
  | "storeWindow"
  | "compress"
  | "selectEntries"
  | "attend"
  | "route"
>;

/** All steps. */
export type CudaSteps = MatrixSteps & SequenceSteps;
