// The roles of the loaded weights, with the CPU backend's objects in them.
import type * as Roles from "../layer-weights.ts";
import type { WeightMatrix } from "../native-kernels.ts";

/** See `NamedMatrix` in ../layer-weights.ts. */
export type NamedMatrix = Roles.NamedMatrix<WeightMatrix>;
/** See `HyperWeights` in ../layer-weights.ts. */
export type HyperWeights = Roles.HyperWeights<WeightMatrix, Float32Array>;
/** See `CompressorWeights` in ../layer-weights.ts. */
export type CompressorWeights = Roles.CompressorWeights<WeightMatrix, Float32Array>;
/** See `LayerWeights` in ../layer-weights.ts. */
export type LayerWeights = Roles.LayerWeights<WeightMatrix, Float32Array, Int32Array>;
/** See `ModelWeights` in ../layer-weights.ts. */
export type ModelWeights = Roles.ModelWeights<WeightMatrix, Float32Array, Int32Array>;
