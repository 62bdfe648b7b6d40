// Synthetic models: files of a real shape with random weights, written as fast as the disk takes them. Each kind of
// tensor is filled from one pool of random blocks, at another place for every piece.
import { statfsSync } from "node:fs";
import { dirname } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { ggmlType, rowBytes, tensorBytes } from "../blocks/ggml-types.ts";
import { CancelledError, Ds4Error } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import { Random } from "../core/random.ts";
import { formatBytes, MIB } from "../core/units.ts";
import { GgufWriter } from "../gguf/gguf-writer.ts";
import type { PlacedTensor, TensorDeclaration } from "../gguf/header-encoder.ts";
import type { ModelSpec } from "../model/model-spec.ts";
import { modelTensors } from "./model-shape.ts";
import { type Recipe, recipeFileType, recipeType, tensorClass } from "./recipe.ts";
import { specMetadata } from "./spec-metadata.ts";
import { fillExpertRows, fillRandomBlocks, type ValueSpread } from "./synth-blocks.ts";
import { synthVocabulary } from "./synth-vocabulary.ts";
import { tokenizerMetadata } from "./tokenizer-metadata.ts";

/** Bytes of a pool; a tensor larger than this repeats blocks. */
const POOL_BYTES = 8 * MIB;
/** How much is written between two looks at the signal. */
const TURN_BYTES = 64 * MIB;

/** What to write. */
export interface SynthOptions {
  spec: ModelSpec;
  recipe: Recipe;
  /** The same options and seed give the same bytes. */
  seed: number | bigint;
  /** Draft blocks that the metadata mentions; see `SpecMetadataOptions`. */
  draftLayerCount?: number;
  /** Write the header only and leave holes for the weights, which read as zeros. */
  sparse?: boolean;
  signal?: { readonly aborted: boolean };
  onProgress?: ProgressListener;
}

/** What was written. */
export interface SynthResult {
  fileBytes: number;
  tensorCount: number;
}

/**
 * Writes a synthetic model to `path`, whole or not at all; an existing file is replaced. Throws `io` (also when the
 * disk has too little room), and `cancelled`.
 */
export async function synthesize(path: string, options: SynthOptions): Promise<SynthResult> {
  const { spec, recipe } = options;
  const tensors = modelTensors(spec).map(
    ({ name, dims }): TensorDeclaration => ({ name, dims, type: recipeType(recipe, name, spec.layerCount) }),
  );
  const metadata = specMetadata(spec, {
    fileType: recipeFileType(recipe),
    draftLayerCount: options.draftLayerCount,
  });
  for (const [key, value] of tokenizerMetadata(synthVocabulary(spec.vocabSize))) metadata.set(key, value);
  if (!options.sparse) checkRoom(path, tensors);
  const writer = new GgufWriter(path, { metadata, tensors });
  try {
    if (!options.sparse) await writeWeights(writer, options);
    writer.finish({ allowHoles: options.sparse });
  } catch (error) {
    writer.abort();
    throw error;
  }
  return { fileBytes: writer.fileBytes, tensorCount: tensors.length };
}

function checkRoom(path: string, tensors: readonly TensorDeclaration[]): void {
  const neededBytes = tensors.reduce((total, { type, dims }) => total + tensorBytes(type, dims), 0);
  let freeBytes: number;
  try {
    const { bavail, bsize } = statfsSync(dirname(path));
    freeBytes = bavail * bsize;
  } catch (error) {
    throw new Ds4Error("io", `cannot write ${path}: ${(error as Error).message}`, { cause: error });
  }
  if (neededBytes <= freeBytes) return;
  throw new Ds4Error(
    "io",
    `${path} needs ${formatBytes(neededBytes)} of disk, ${formatBytes(freeBytes)} are free. ` +
      "Take fewer layers, a smaller recipe, or leave the weights out (sparse).",
  );
}

async function writeWeights(writer: GgufWriter, options: SynthOptions): Promise<void> {
  const pools = new BlockPools(options.spec, writer.tensors, new Random(options.seed));
  const total = writer.tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);
  let done = 0;
  let turnAt = TURN_BYTES;
  for (const tensor of writer.tensors) {
    for (let left = tensor.bytes; left > 0; ) {
      const piece = pools.piece(tensor, left);
      writer.writeTensor(tensor.name, piece);
      left -= piece.length;
      done += piece.length;
      if (done < turnAt) continue;
      turnAt = done + TURN_BYTES;
      await nextTurn(); // lets Ctrl+C arrive
      if (options.signal?.aborted) throw new CancelledError(`cancelled; ${writer.path} was not written`);
      options.onProgress?.({ label: "synth", done, total, unit: "bytes", detail: tensor.name });
    }
  }
  options.onProgress?.({ label: "synth", done: total, total, unit: "bytes" });
}

/** Random bytes by kind of tensor, made when first asked for. */
class BlockPools {
  readonly #spec: ModelSpec;
  readonly #random: Random;
  readonly #pools = new Map<string, Uint8Array>();
  /** Bytes of the largest tensor of each kind. */
  readonly #largest = new Map<string, number>();

  constructor(spec: ModelSpec, tensors: readonly PlacedTensor[], random: Random) {
    this.#spec = spec;
    this.#random = random;
    for (const tensor of tensors) {
      const key = kindOf(tensor);
      this.#largest.set(key, Math.max(tensor.bytes, this.#largest.get(key) ?? 0));
    }
  }

  /** At most `maxBytes` bytes of whole blocks (rows of an index), from a random place in the pool. A view. */
  piece(tensor: PlacedTensor, maxBytes: number): Uint8Array {
    const unitBytes = this.#unitBytes(tensor);
    const pool = this.#pool(tensor, unitBytes);
    const units = pool.length / unitBytes;
    const start = Math.floor((this.#random.nextFloat() * (units + 1)) / 2) * unitBytes;
    return pool.subarray(start, Math.min(start + maxBytes, pool.length));
  }

  #unitBytes({ type, dims }: PlacedTensor): number {
    return type === "I32" ? rowBytes(type, dims[0]) : ggmlType(type).blockBytes;
  }

  #pool(tensor: PlacedTensor, unitBytes: number): Uint8Array {
    const key = kindOf(tensor);
    const known = this.#pools.get(key);
    if (known !== undefined) return known;
    const bytes = Math.min(POOL_BYTES, this.#largest.get(key) ?? tensor.bytes);
    const pool = new Uint8Array(Math.floor(bytes / unitBytes) * unitBytes);
    if (tensor.type === "I32") fillExpertRows(pool, tensor.dims[0], this.#spec.expertCount, this.#random);
    else fillRandomBlocks(tensor.type, pool, spreadOf(tensor), this.#random);
    this.#pools.set(key, pool);
    return pool;
  }
}

function kindOf(tensor: TensorDeclaration): string {
  const { mean, std } = spreadOf(tensor);
  return `${tensor.type} ${mean} ${std}`;
}

/** Values like a trained model's: matrices that keep the size of what passes through, norms around 1. */
export function spreadOf({ name, dims }: Pick<TensorDeclaration, "name" | "dims">): ValueSpread {
  if (tensorClass(name) !== "vector") {
    if (name === "token_embd.weight") return { mean: 0, std: 1 };
    if (name.includes("_compressor_ape")) return { mean: 0, std: 0.3 };
    return { mean: 0, std: 1 / Math.sqrt(dims[0]) };
  }
  if (name.includes("norm")) return { mean: 1, std: 0.1 };
  if (name.includes("hc_") && name.endsWith("_scale.weight")) return { mean: 0.2, std: 0.02 };
  if (name.endsWith("exp_probs_b.bias")) return { mean: 0, std: 0.02 };
  return { mean: 0, std: 0.5 }; // sinks, hyper-connection bases
}
