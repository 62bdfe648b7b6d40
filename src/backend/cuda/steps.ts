// The steps that a pass is made of, as the host code sees them: kernel launches, or for tests anything that does the same.
import type { DeviceBuffer } from "./device-memory.ts";
import type * as experts from "./expert-products.ts";
import type { DeviceMatrix } from "./matrix.ts";
import type * as plans from "./matrix-plans.ts";
import type * as dense from "./matrix-steps.ts";
import type * as sequence from "./sequence-steps.ts";
import type * as top from "./top-logits-steps.ts";

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
export type MatrixSteps = Pick<typeof plans, "workBytes"> &
  Pick<typeof dense, "multiply" | "multiplyGroups" | "embed"> &
  Pick<typeof experts, "groupByExpert" | "expertsUp" | "expertsDown">;

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
> &
  Pick<typeof top, "topLogits">;

/** All steps. */
export type CudaSteps = MatrixSteps & SequenceSteps;
