// The ggml tensor types met in DeepSeek V4 files: ids, block lengths, block sizes. Sizes from the GGUF format
// specification; types outside this table are refused by name or id at load.
import { Ds4Error } from "../core/errors.ts";

/** Names of the tensor types this project reads. */
export type GgmlType =
  | "F32"
  | "F16"
  | "BF16"
  | "I32"
  | "Q8_0"
  | "Q2_K"
  | "Q3_K"
  | "Q4_K"
  | "Q5_K"
  | "Q6_K"
  | "IQ2_XXS"
  | "IQ2_XS"
  | "IQ3_XXS"
  | "IQ4_XS"
  | "MXFP4";

/** Layout facts of one tensor type. */
export interface GgmlTypeInfo {
  name: GgmlType;
  /** Type id stored in the file. */
  id: number;
  /** Values per block; a row's length is a multiple of it. */
  blockValues: number;
  /** Bytes per block. */
  blockBytes: number;
}

const TABLE: readonly GgmlTypeInfo[] = [
  { name: "F32", id: 0, blockValues: 1, blockBytes: 4 },
  { name: "F16", id: 1, blockValues: 1, blockBytes: 2 },
  { name: "Q8_0", id: 8, blockValues: 32, blockBytes: 34 },
  { name: "Q2_K", id: 10, blockValues: 256, blockBytes: 84 },
  { name: "Q3_K", id: 11, blockValues: 256, blockBytes: 110 },
  { name: "Q4_K", id: 12, blockValues: 256, blockBytes: 144 },
  { name: "Q5_K", id: 13, blockValues: 256, blockBytes: 176 },
  { name: "Q6_K", id: 14, blockValues: 256, blockBytes: 210 },
  { name: "IQ2_XXS", id: 16, blockValues: 256, blockBytes: 66 },
  { name: "IQ2_XS", id: 17, blockValues: 256, blockBytes: 74 },
  { name: "IQ3_XXS", id: 18, blockValues: 256, blockBytes: 98 },
  { name: "IQ4_XS", id: 23, blockValues: 256, blockBytes: 136 },
  { name: "I32", id: 26, blockValues: 1, blockBytes: 4 },
  { name: "BF16", id: 30, blockValues: 1, blockBytes: 2 },
  { name: "MXFP4", id: 39, blockValues: 32, blockBytes: 17 },
];

/** Ids that exist in ggml but that this project does not read: so that a refusal can name them. */
const UNSUPPORTED_NAMES = new Map<number, string>([
  [2, "Q4_0"],
  [3, "Q4_1"],
  [6, "Q5_0"],
  [7, "Q5_1"],
  [9, "Q8_1"],
  [15, "Q8_K"],
  [19, "IQ1_S"],
  [20, "IQ4_NL"],
  [21, "IQ3_S"],
  [22, "IQ2_S"],
  [24, "I8"],
  [25, "I16"],
  [27, "I64"],
  [28, "F64"],
  [29, "IQ1_M"],
  [34, "TQ1_0"],
  [35, "TQ2_0"],
  [40, "NVFP4"],
  [41, "Q1_0"],
  [42, "Q2_0"],
]);

const BY_ID = new Map(TABLE.map((info) => [info.id, info]));
const BY_NAME = new Map(TABLE.map((info) => [info.name as string, info]));

/** All supported types, in id order. */
export const GGML_TYPES: readonly GgmlTypeInfo[] = TABLE;

/** Looks a type up by its id in the file. Null when the id is not supported. */
export function findGgmlTypeById(id: number): GgmlTypeInfo | null {
  return BY_ID.get(id) ?? null;
}

/** What to call a type id in an error: its ggml name where known, else the number. */
export function describeGgmlTypeId(id: number): string {
  return BY_ID.get(id)?.name ?? UNSUPPORTED_NAMES.get(id) ?? `type id ${id}`;
}

/** Looks a type up by name. Throws `unsupported-type` listing the known names. */
export function ggmlType(name: string): GgmlTypeInfo {
  const info = BY_NAME.get(name.toUpperCase());
  if (info) return info;
  const known = TABLE.map((entry) => entry.name).join(", ");
  throw new Ds4Error("unsupported-type", `unknown tensor type "${name}"; known types: ${known}`);
}

/** Bytes of one row of `rowValues` values. `rowValues` must be a multiple of the block length. */
export function rowBytes(type: GgmlType, rowValues: number): number {
  const info = ggmlType(type);
  if (rowValues % info.blockValues !== 0) {
    throw new Ds4Error(
      "unsupported-type",
      `a row of ${rowValues} values is not a multiple of ${type}'s block of ${info.blockValues}`,
    );
  }
  return (rowValues / info.blockValues) * info.blockBytes;
}

/** Bytes of a whole tensor, `dims` fastest first as in a file. Throws as `rowBytes`; not a safe integer when too large. */
export function tensorBytes(type: GgmlType, [rowValues, ...rows]: readonly number[]): number {
  return rows.reduce((product, dim) => product * dim, rowBytes(type, rowValues));
}
