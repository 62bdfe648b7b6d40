// What the steps of one forward pass share.
import { UnsupportedModelError } from "../../core/errors.ts";
import type { ModelSpec } from "../../model/model-spec.ts";
import type { ForwardOptions } from "../backend.ts";
import type { NativeKernels, Workspace } from "../native-kernels.ts";
import type { TokenBatch } from "../token-batch.ts";
import type { CpuKv } from "./kv-state.ts";
import type { Scratch } from "./scratch.ts";

/** What the steps of a pass work with. */
export interface Pass {
  kernels: NativeKernels;
  workspace: Workspace;
  spec: ModelSpec;
  scratch: Scratch;
  batch: TokenBatch<CpuKv>;
  /** Tokens of the batch. */
  tokens: number;
  frequencies: RopeFrequencies;
  options: ForwardOptions;
}

/** Radians per position [pairs] of sliding-only and of compressed layers. */
export interface RopeFrequencies {
  plain: Float32Array;
  stretched: Float32Array;
}

/** What a damaged file or state shows as. */
export function notFinite(what: string): UnsupportedModelError {
  return new UnsupportedModelError(
    `${what}, expected finite ones; the model file or the KV state is damaged`,
  );
}
