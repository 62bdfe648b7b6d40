// `quantize`: a GGUF file to another one with other tensor types. Metadata is carried over.
import { realpathSync } from "node:fs";
import { type GgmlType, ggmlType } from "../blocks/ggml-types.ts";
import { blockFormat } from "../blocks/registry.ts";
import { Ds4Error, UsageError } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { GgufFile, MetadataValue, TensorInfo } from "../gguf/gguf-file.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import { lateLayerOf, type RecipeOptions } from "./convert.ts";
import { ggufTensorSource } from "./gguf-tensor-source.ts";
import { type Imatrix, readImatrix } from "./imatrix-file.ts";
import { IMATRIX_PREFIX, imatrixMetadata } from "./imatrix-metadata.ts";
import { fittingType, recipeFileType, recipeType } from "./recipe.ts";
import { createRowEncoder } from "./row-encoder.ts";
import { sourceName } from "./tensor-names.ts";
import { type TensorJob, type WriteResult, writeTensors } from "./write-tensors.ts";

/** One `--tensor-type`: tensors whose name matches `pattern` (`*` stands for any text) get `type`. */
export interface TypeOverride {
  pattern: string;
  type: GgmlType;
}

/** Input and output of a requantization. */
export interface QuantizeOptions extends RecipeOptions {
  inPath: string;
  outPath: string;
  /** The last one that matches a tensor wins. */
  overrides?: readonly TypeOverride[];
}

/** What was made. */
export interface QuantizeResult extends WriteResult {
  /** Tensors copied byte for byte: their type did not change. */
  copiedTensors: number;
  /** Tensors that were quantized before and are now so again: they lose twice. */
  requantizedTensors: number;
  /** `name: type instead of type`, for rows that the recipe's type cannot hold. */
  fallbacks: readonly string[];
}

/** Types that a checkpoint itself has, or that store every value by itself: encoding them again loses once only. */
const ORIGINAL_TYPES: readonly GgmlType[] = ["F32", "F16", "BF16", "I32", "MXFP4"];

/**
 * Requantizes a file. Tensors with names that the family does not have keep their type. Throws `gguf`, `io`, `convert`,
 * `unsupported-type`, `usage` (nothing matches an override, the output exists or is the input) or `cancelled`; then no
 * file is left behind.
 */
export async function quantizeGguf(options: QuantizeOptions): Promise<QuantizeResult> {
  refuseSameFile(options);
  const file = openGguf(options.inPath);
  let imatrix: Imatrix | undefined;
  try {
    if (options.imatrixPath !== undefined) imatrix = readImatrix(options.imatrixPath);
    const { jobs, fallbacks } = planJobs(file, options);
    const { outPath: path, force, signal, onProgress } = options;
    const metadata = carriedMetadata(file, recipeFileType(options.recipe), imatrix);
    const encoder = createRowEncoder({ threads: options.threads });
    const result = await writeTensors({
      ...{ path, force, signal, onProgress, metadata, jobs, encoder, imatrix },
      label: "quantize",
    });
    const changed = jobs.filter(({ source, type }) => !source.exactTypes.includes(type));
    const requantized = changed.filter(({ source }) => !ORIGINAL_TYPES.includes(source.exactTypes[0]));
    return {
      ...result,
      fallbacks,
      copiedTensors: jobs.length - changed.length,
      requantizedTensors: requantized.length,
    };
  } finally {
    imatrix?.close();
    file.close();
  }
}

/** Parses `NAME=TYPE`. Throws `usage`, or `unsupported-type` listing the types. */
export function parseTypeOverride(text: string): TypeOverride {
  const at = text.lastIndexOf("=");
  if (at < 1 || at === text.length - 1) {
    throw new UsageError(`expected NAME=TYPE, for example "blk.0.*=Q8_0", got ${JSON.stringify(text)}`);
  }
  const type = ggmlType(text.slice(at + 1)).name;
  if (blockFormat(type).encode === undefined) {
    throw new UsageError(`${type} can be read but not written; choose another type`);
  }
  return { pattern: text.slice(0, at), type };
}

function planJobs(file: GgufFile, options: QuantizeOptions): { jobs: TensorJob[]; fallbacks: string[] } {
  const layerCount = file.tensors.reduce((count, { name }) => {
    return Math.max(count, 1 + Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1));
  }, 0);
  const lateLayer = lateLayerOf(options, layerCount);
  const overrides = (options.overrides ?? []).map((override) => ({
    ...override,
    matches: patternTest(override.pattern),
    used: false,
  }));
  const fallbacks: string[] = [];
  const typeOf = (tensor: TensorInfo): GgmlType => {
    const matching = overrides.filter(({ matches }) => matches(tensor.name));
    for (const override of matching) override.used = true;
    const last = matching.at(-1);
    if (last !== undefined) return checkedOverride(tensor, last.type);
    if (sourceName(tensor.name.replace(/^mtp\./, "blk.")) === undefined) return tensor.type;
    const wanted = recipeType(options.recipe, tensor.name, layerCount, lateLayer);
    const type = fittingType(wanted, tensor.dims[0]);
    if (type !== wanted) fallbacks.push(`${tensor.name}: ${type} instead of ${wanted}`);
    return type;
  };
  const jobs = file.tensors.map((tensor) => ({
    source: ggufTensorSource(file, tensor),
    type: typeOf(tensor),
  }));
  const unused = overrides.find(({ used }) => !used);
  if (unused !== undefined) {
    throw new UsageError(
      `--tensor-type: no tensor of ${file.name} is called ${quotedText(unused.pattern)}; ` +
        `"ds4 inspect --tensors" lists the names`,
    );
  }
  return { jobs, fallbacks };
}

/** Index tables and everything else do not mix: ids are no weights. */
function checkedOverride(tensor: TensorInfo, type: GgmlType): GgmlType {
  if ((tensor.type === "I32") === (type === "I32")) return type;
  throw new UsageError(
    `--tensor-type: tensor ${quotedText(tensor.name)} is ${tensor.type} and cannot become ${type}`,
  );
}

/** `*` stands for any text; everything else is literal. */
function patternTest(pattern: string): (name: string) => boolean {
  const pieces = pattern.split("*");
  const first = pieces[0];
  const last = pieces[pieces.length - 1];
  if (pieces.length === 1) return (name) => name === pattern;
  return (name) => {
    if (!name.startsWith(first) || !name.endsWith(last) || name.length < first.length + last.length)
      return false;
    let at = first.length;
    for (const piece of pieces.slice(1, -1)) {
      const found = name.indexOf(piece, at);
      if (found < 0) return false;
      at = found + piece.length;
    }
    return at <= name.length - last.length;
  };
}

/** The input's keys, without those of a split, with what changed. */
function carriedMetadata(file: GgufFile, fileType: number, imatrix?: Imatrix): Map<string, MetadataValue> {
  const metadata = new Map(file.metadata);
  for (const key of metadata.keys()) {
    const describesOldMatrix = imatrix !== undefined && key.startsWith(IMATRIX_PREFIX);
    if (key.startsWith("split.") || describesOldMatrix) metadata.delete(key);
  }
  metadata.set("general.file_type", { type: "u32", value: fileType });
  metadata.set("general.quantization_version", { type: "u32", value: 2 });
  for (const [key, value] of imatrix ? imatrixMetadata(imatrix) : []) metadata.set(key, value);
  return metadata;
}

/** Replacing the input while it is read would be safe here, but lose the better file. */
function refuseSameFile({ inPath, outPath }: QuantizeOptions): void {
  const real = (path: string) => {
    try {
      return realpathSync(path);
    } catch {
      return undefined; // does not exist
    }
  };
  const input = real(inPath);
  if (input === undefined || input !== real(outPath)) return;
  throw new Ds4Error("usage", `${outPath} is the input itself; choose another name for the output`);
}
