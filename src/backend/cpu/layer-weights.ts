// The roles of the loaded weights, with the CPU backend's objects in them.
import type * as Roles from "../layer-weights.ts";
import type { WeightMatrix } from "../native-kernels.ts";

export type NamedMatrix = Roles.NamedMatrix<WeightMatrix>;
export type HyperWeights = Roles.HyperWeights<WeightMatrix, Float32Array>;
export type CompressorWeights = Roles.CompressorWeights<WeightMatrix, Float32Array>;
export type LayerWeights = Roles.LayerWeights<WeightMatrix, Float32Array, Int32Array>;
export type ModelWeights = Roles.ModelWeights<WeightMatrix, Float32Array, Int32Array>;
