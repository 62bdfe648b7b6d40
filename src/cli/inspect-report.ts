// What a GGUF file holds, as plain data: the numbers behind `ds4 inspect`. Reads the header only and judges nothing:
// a file that the engine cannot run can still be inspected.
import type { GgmlType } from "../blocks/ggml-types.ts";
import type { GgufFile, MetadataValue, TensorInfo } from "../gguf/gguf-file.ts";

/** What a tensor is for, as far as its name tells. */
export type TensorClass = "routed experts" | "shared expert" | "attention" | "embedding/head" | "other";

/** The classes in the order they are shown. */
export const TENSOR_CLASSES: readonly TensorClass[] = [
  "routed experts",
  "attention",
  "shared expert",
  "embedding/head",
  "other",
];

/** Count and size of a group of tensors. */
export interface TensorTotal {
  name: string;
  count: number;
  bytes: number;
  /** Numbers stored, before quantization. */
  values: number;
}

/** Neighbouring layers whose tensors have the same types. */
export interface LayerRange {
  first: number;
  last: number;
  /** Types of the routed experts: one, or gate, up, down where they differ. Empty without experts. */
  experts: GgmlType[];
  /** Types of the attention tensors, largest share first. */
  attention: GgmlType[];
  /** Bytes of all these layers together. */
  bytes: number;
}

/** Size of the tokenizer in the metadata. */
export interface TokenizerSize {
  tokens: number;
  merges: number;
}

/** Everything `ds4 inspect` knows. Shares the file's metadata and tensor entries; holds no weights. */
export interface InspectReport {
  name: string;
  architecture: string | null;
  version: number;
  alignmentBytes: number;
  parts: readonly string[];
  fileBytes: number;
  /** Sum of the tensors, without header and padding. */
  tensorBytes: number;
  tensorCount: number;
  metadata: ReadonlyMap<string, MetadataValue>;
  /** Largest first. */
  types: TensorTotal[];
  /** In the order of `TENSOR_CLASSES`, empty classes left out. */
  classes: TensorTotal[];
  layers: LayerRange[];
  /** Null when the file has no token list. */
  tokenizer: TokenizerSize | null;
  tensors: readonly TensorInfo[];
}

const LAYER_NAME = /^blk\.(\d{1,6})\./;
const EXPERT_PARTS: readonly string[] = ["gate", "up", "down"];

/** Gathers the report. Reads nothing from the file beyond its parsed header. */
export function inspectReport(file: GgufFile): InspectReport {
  const { tensors, metadata } = file;
  const classes = totals(tensors, classOf);
  const architecture = metadata.get("general.architecture");
  return {
    name: file.name,
    architecture: architecture?.type === "string" ? architecture.value : null,
    version: file.version,
    alignmentBytes: file.alignmentBytes,
    parts: file.parts,
    fileBytes: file.sizeBytes,
    tensorBytes: sum(tensors.map((tensor) => tensor.bytes)),
    tensorCount: tensors.length,
    metadata,
    types: totals(tensors, (tensor) => tensor.type).sort((a, b) => b.bytes - a.bytes),
    classes: TENSOR_CLASSES.flatMap((name) => classes.find((total) => total.name === name) ?? []),
    layers: layerRanges(tensors),
    tokenizer: tokenizerSize(metadata),
    tensors,
  };
}

/** The class of a tensor, by the names that DeepSeek V4 files use. */
export function classOf(tensor: TensorInfo): TensorClass {
  const name = tensor.name.replace(LAYER_NAME, "");
  if (/_exps\./.test(name)) return "routed experts";
  if (/_shexp\./.test(name)) return "shared expert";
  if (/^(attn|indexer)[._]/.test(name)) return "attention";
  if (/^(token_embd|output|output_.*)\./.test(name)) return "embedding/head";
  return "other";
}

function totals(tensors: readonly TensorInfo[], keyOf: (tensor: TensorInfo) => string): TensorTotal[] {
  const byName = new Map<string, TensorTotal>();
  for (const tensor of tensors) {
    const name = keyOf(tensor);
    const total = byName.get(name) ?? { name, count: 0, bytes: 0, values: 0 };
    total.count++;
    total.bytes += tensor.bytes;
    total.values += tensor.dims.reduce((product, dim) => product * dim, 1);
    byName.set(name, total);
  }
  return [...byName.values()];
}

function layerRanges(tensors: readonly TensorInfo[]): LayerRange[] {
  const byLayer = new Map<number, TensorInfo[]>();
  for (const tensor of tensors) {
    const match = LAYER_NAME.exec(tensor.name);
    if (match === null) continue;
    const layer = Number(match[1]);
    const entries = byLayer.get(layer);
    if (entries === undefined) byLayer.set(layer, [tensor]);
    else entries.push(tensor);
  }
  const ranges: LayerRange[] = [];
  for (const layer of [...byLayer.keys()].sort((a, b) => a - b)) {
    const next = describeLayer(layer, byLayer.get(layer)!);
    const previous = ranges.at(-1);
    if (previous !== undefined && previous.last === layer - 1 && sameTypes(previous, next)) {
      previous.last = layer;
      previous.bytes += next.bytes;
    } else {
      ranges.push(next);
    }
  }
  return ranges;
}

function describeLayer(layer: number, tensors: readonly TensorInfo[]): LayerRange {
  const experts = EXPERT_PARTS.flatMap(
    (part) => tensors.find((tensor) => tensor.name.endsWith(`.ffn_${part}_exps.weight`))?.type ?? [],
  );
  const attention = totals(
    tensors.filter((tensor) => classOf(tensor) === "attention"),
    (tensor) => tensor.type,
  );
  attention.sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1));
  return {
    first: layer,
    last: layer,
    experts: new Set(experts).size === 1 ? [experts[0]] : experts,
    attention: attention.map((total) => total.name as GgmlType),
    bytes: sum(tensors.map((tensor) => tensor.bytes)),
  };
}

/** Same experts and same main attention type: layer kinds differ in small tensors, which would split every range. */
function sameTypes(a: LayerRange, b: LayerRange): boolean {
  return a.experts.join() === b.experts.join() && a.attention[0] === b.attention[0];
}

function tokenizerSize(metadata: ReadonlyMap<string, MetadataValue>): TokenizerSize | null {
  const length = (key: string) => {
    const value = metadata.get(`tokenizer.ggml.${key}`);
    return value?.type === "array" ? value.values.length : null;
  };
  const tokens = length("tokens");
  return tokens === null ? null : { tokens, merges: length("merges") ?? 0 };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
