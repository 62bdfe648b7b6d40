// `convert`: an official checkpoint folder to one GGUF file. Everything is planned and checked from headers first;
// then the tensors stream through.
import { basename, join, resolve } from "node:path";
import { assert, Ds4Error } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { ByteSource } from "../gguf/byte-source.ts";
import type { MetadataValue } from "../gguf/gguf-file.ts";
import { encodeHeader } from "../gguf/header-encoder.ts";
import { parseGguf } from "../gguf/parse-gguf.ts";
import { bindModel } from "../model/weights.ts";
import { tablesFromHuggingFace } from "../tokenizer/hugging-face.ts";
import { type Checkpoint, openCheckpoint } from "./checkpoint.ts";
import { checkpointSource } from "./checkpoint-source.ts";
import { type Imatrix, readImatrix } from "./imatrix-file.ts";
import { imatrixMetadata } from "./imatrix-metadata.ts";
import { readModelConfig } from "./model-config.ts";
import { modelTensors } from "./model-shape.ts";
import { firstLateLayer, fittingType, type Recipe, recipeFileType, recipeType } from "./recipe.ts";
import { createRowEncoder } from "./row-encoder.ts";
import { specMetadata } from "./spec-metadata.ts";
import { scaleName, sourceName, sourceNames } from "./tensor-names.ts";
import { tokenizerMetadata } from "./tokenizer-metadata.ts";
import { declarationOf, type TensorJob, type WriteResult, writeTensors } from "./write-tensors.ts";

/** What both commands can be told. */
export interface RecipeOptions {
  recipe: Recipe;
  /** Last layers whose experts are Q4_K under `q2-q4`. Default: 6 of 43, at least 2. */
  q4Layers?: number;
  imatrixPath?: string;
  /** Threads of the native encoders. Default 1. */
  threads?: number;
  /** Replace an existing file. */
  force?: boolean;
  signal?: AbortSignal;
  onProgress?: ProgressListener;
}

/** Input and output of a conversion. */
export interface ConvertOptions extends RecipeOptions {
  folder: string;
  outPath: string;
  /** `general.name`. Default: the folder's name. */
  name?: string;
}

/** What was made, and what of the input was left out or stored otherwise than the recipe says. */
export interface ConvertResult extends WriteResult {
  /** Checkpoint tensors of draft blocks: no part of the file. */
  skippedDraftTensors: number;
  /** `name: type instead of type`, for rows that the recipe's type cannot hold. */
  fallbacks: readonly string[];
}

/**
 * Converts a checkpoint. Peak memory: a few slices of 4 MiB, the headers and the tokenizer. Throws `io`,
 * `safetensors`, `convert`, `tokenizer`, `unsupported-model`, `unsupported-type`, `usage` or `cancelled`; then no file
 * is left behind.
 */
export async function convertCheckpoint(options: ConvertOptions): Promise<ConvertResult> {
  const checkpoint = openCheckpoint(options.folder);
  let imatrix: Imatrix | undefined;
  try {
    if (options.imatrixPath !== undefined) imatrix = readImatrix(options.imatrixPath);
    const plan = planConversion(checkpoint, options, imatrix);
    const { outPath: path, force, signal, onProgress } = options;
    const { metadata, jobs } = plan;
    const encoder = createRowEncoder({ threads: options.threads });
    const result = await writeTensors({
      ...{ path, force, signal, onProgress, metadata, jobs, encoder, imatrix },
      label: "convert",
    });
    return { ...result, skippedDraftTensors: plan.skippedDraftTensors, fallbacks: plan.fallbacks };
  } finally {
    imatrix?.close();
    checkpoint.close();
  }
}

interface ConversionPlan {
  metadata: Map<string, MetadataValue>;
  jobs: TensorJob[];
  skippedDraftTensors: number;
  fallbacks: string[];
}

function planConversion(checkpoint: Checkpoint, options: ConvertOptions, imatrix?: Imatrix): ConversionPlan {
  const { recipe, folder } = options;
  const name = options.name ?? basename(resolve(folder));
  const { spec, draftLayerCount } = readModelConfig(checkpoint.config, name);
  const tensors = modelTensors(spec).map((tensor) => ({ tensor, source: knownSource(tensor.name) }));
  const sources = tensors.map(({ source }) => source);
  const skippedDraftTensors = checkAllKnown(checkpoint, sources, spec.expertCount);
  const fallbacks: string[] = [];
  const jobs = tensors.map(({ tensor, source }): TensorJob => {
    const wanted = recipeType(recipe, tensor.name, spec.layerCount, lateLayerOf(options, spec.layerCount));
    const type = fittingType(wanted, tensor.dims[0]);
    if (type !== wanted) fallbacks.push(`${tensor.name}: ${type} instead of ${wanted}`);
    return { source: checkpointSource(checkpoint, tensor, source, spec.expertCount), type };
  });
  const tokenizer = tablesFromHuggingFace(checkpoint.readTokenizer(), {
    vocabSize: spec.vocabSize,
    where: join(folder, "tokenizer.json"),
  });
  const metadata = new Map([
    ...specMetadata(spec, { fileType: recipeFileType(recipe), draftLayerCount }),
    ...tokenizerMetadata(tokenizer),
    ...(imatrix ? imatrixMetadata(imatrix) : []),
  ]);
  checkModel(folder, metadata, jobs);
  return { metadata, jobs, skippedDraftTensors, fallbacks };
}

/** First layer in Q4_K under q2-q4: as asked for, or the recipe's own. */
export function lateLayerOf(options: RecipeOptions, layerCount: number): number {
  const { q4Layers } = options;
  return q4Layers === undefined ? firstLateLayer(layerCount) : Math.max(0, layerCount - q4Layers);
}

function knownSource(name: string): string {
  const source = sourceName(name);
  assert(source !== undefined, `tensor ${name} has no name in checkpoints`);
  return source;
}

/** Refuses tensors that nothing uses: a model with unknown parts would convert to a wrong one. */
function checkAllKnown(checkpoint: Checkpoint, sources: readonly string[], expertCount: number): number {
  const known = new Set<string>();
  for (const name of sources.flatMap((source) => sourceNames(source, expertCount))) {
    known.add(name);
    known.add(scaleName(name));
  }
  let draftTensors = 0;
  for (const name of checkpoint.names) {
    if (name.startsWith("mtp.")) draftTensors++;
    else if (!known.has(name)) {
      throw new Ds4Error(
        "convert",
        `${checkpoint.folder}: tensor ${quotedText(name)} is no part of a DeepSeek V4 model as config.json describes it`,
      );
    }
  }
  return draftTensors;
}

/** Binds the header that will be written, as the engine would: all names, shapes and hyperparameters are checked. */
function checkModel(folder: string, metadata: Map<string, MetadataValue>, jobs: readonly TensorJob[]): void {
  const { header, fileBytes } = encodeHeader(metadata, jobs.map(declarationOf));
  bindModel(parseGguf(headerOnly(header, fileBytes, folder)));
}

/** A header as a source of the size that the whole file will have; beyond it are zeros. */
function headerOnly(header: Uint8Array, sizeBytes: number, name: string): ByteSource {
  return {
    name,
    sizeBytes,
    readInto(target, offsetBytes) {
      target.fill(0);
      target.set(header.subarray(offsetBytes, offsetBytes + target.length));
    },
    close() {},
  };
}
