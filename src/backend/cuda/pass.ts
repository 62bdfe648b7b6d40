// What the steps of one forward pass on the device share.
import { UnsupportedModelError } from "../../core/errors.ts";
import type { ModelSpec } from "../../model/model-spec.ts";
import type { ForwardOptions } from "../backend.ts";
import type * as Roles from "../layer-weights.ts";
import type { Segment, TokenBatch } from "../token-batch.ts";
import type { CudaContext } from "./context.ts";
import type { ChainShape } from "./decode-plans.ts";
import type { DeviceBuffer } from "./device-memory.ts";
import type { CudaKv } from "./kv-state.ts";
import type { DeviceMatrix } from "./matrix.ts";
import type { CudaScratch, ScratchBuffers } from "./scratch.ts";
import { DECODE_STATE_BYTES } from "./sequence-plans.ts";
import type { StepGraphs } from "./step-graphs.ts";
import type { CudaSteps, MatrixWork } from "./steps.ts";

/** The roles of the weights, with device memory in them. */
export type CudaLayerWeights = Roles.LayerWeights<DeviceMatrix, DeviceBuffer, DeviceBuffer>;
/** See `CudaLayerWeights`. */
export type CudaModelWeights = Roles.ModelWeights<DeviceMatrix, DeviceBuffer, DeviceBuffer>;
/** See `CudaLayerWeights`. */
export type CudaHyperWeights = Roles.HyperWeights<DeviceMatrix, DeviceBuffer>;
/** See `CudaLayerWeights`. */
export type CudaCompressorWeights = Roles.CompressorWeights<DeviceMatrix, DeviceBuffer>;
/** See `CudaLayerWeights`. */
export type CudaNamedMatrix = Roles.NamedMatrix<DeviceMatrix>;

/** What the steps of a pass work with. */
export interface CudaPass {
  ctx: CudaContext;
  steps: CudaSteps;
  /** Working memory of the matrix steps. */
  work: MatrixWork;
  spec: ModelSpec;
  scratch: CudaScratch;
  buffers: ScratchBuffers;
  batch: TokenBatch<CudaKv>;
  /** Tokens of the batch. */
  tokens: number;
  options: ForwardOptions;
  graphs: StepGraphs;
  /** How a lone token goes through the layers; null: like others, with models that a chain cannot read. */
  chain: ChainShape | null;
}

/**
 * Upper bound of the tokens that a segment's sequence holds after the pass. Grids and cuts depend on it: what is recorded
 * once and replayed as the sequence grows takes the state's capacity.
 */
export function mostTokens(pass: CudaPass, { start, count, kv }: Segment<CudaKv>): number {
  return isRepeatable(pass) ? kv.capacityTokens : start + count;
}

/** True for a step of one token per sequence that nobody watches: it reads all that changes from device memory. */
export function isRepeatable({ batch, options }: CudaPass): boolean {
  const watched = options.trace !== undefined || options.observeInputs !== undefined;
  return !watched && batch.segments.every(({ count }) => count === 1);
}

const LOGITS_MARKS = { none: "", last: "+", top: "*", all: "=" } as const;

/** Equal for steps of the same sequences in the same order with the same logits wanted. */
export function stepKey({ batch }: CudaPass): string {
  return batch.segments.map(({ kv, logits }) => `${kv.id}${LOGITS_MARKS[logits]}`).join(" ");
}

/** Runs all steps of a pass over `products`, showing their input where the caller wants to see it. */
export function multiply(
  pass: CudaPass,
  x: DeviceBuffer,
  columns: number,
  products: readonly (readonly [CudaNamedMatrix, DeviceBuffer])[],
): void {
  const { ctx, steps, tokens, work } = pass;
  for (const [{ name }] of products) observe(pass, name, x, tokens, columns);
  const matrices = products.map(([{ matrix }]) => matrix);
  const outs = products.map(([, out]) => out);
  steps.multiply(ctx, tokens, x, columns, matrices, outs, work.input);
}

/** Shows the input of a dense matrix. */
export function observe(
  { options, ctx }: CudaPass,
  name: string,
  x: DeviceBuffer,
  rows: number,
  columns: number,
): void {
  if (options.observeInputs === undefined) return;
  options.observeInputs(name, -1, ctx.stream.read(x, new Float32Array(rows * columns)), rows);
}

/** Shows an intermediate result [tokens, width]. */
export function trace(
  { options, ctx, tokens }: CudaPass,
  name: string,
  layer: number,
  buffer: DeviceBuffer,
  width: number,
): void {
  options.trace?.(name, layer, ctx.stream.read(buffer, new Float32Array(tokens * width)));
}

/** A segment's rows of an array [tokens, width] of four-byte values. */
export function rowsOf(buffer: DeviceBuffer, { first, count }: Segment<CudaKv>, width: number): DeviceBuffer {
  return buffer.slice(4 * first * width, 4 * count * width);
}

/** A segment's `DecodeState`. */
export function stateOf({ buffers, batch }: CudaPass, segment: Segment<CudaKv>): DeviceBuffer {
  return buffers.states.slice(batch.segments.indexOf(segment) * DECODE_STATE_BYTES, DECODE_STATE_BYTES);
}

/** What a damaged file or state shows as. */
export function notFinite(what: string): UnsupportedModelError {
  return new UnsupportedModelError(
    `${what}, expected finite ones; the model file or the KV state is damaged`,
  );
}
