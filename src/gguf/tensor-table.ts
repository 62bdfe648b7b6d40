// Tensor infos of a GGUF header, and the checks that make their byte ranges trustworthy: known types, sizes
// without overflow, aligned, inside the file, no overlap, unique names.
import { describeGgmlTypeId, findGgmlTypeById, GGML_TYPES, type GgmlTypeInfo } from "../blocks/ggml-types.ts";
import { Ds4Error, GgufError } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import type { ByteReader } from "./byte-reader.ts";
import type { TensorInfo } from "./gguf-file.ts";
import { MAX_DIMS, MAX_TENSOR_NAME_BYTES } from "./limits.ts";

/** A tensor info as read: the offset is still relative to the data section. */
export interface RawTensorInfo {
  name: string;
  type: GgmlTypeInfo;
  dims: number[];
  relativeOffset: number;
  bytes: number;
}

/** Reads `count` infos. */
export function parseTensorInfos(reader: ByteReader, count: number): RawTensorInfo[] {
  const infos: RawTensorInfo[] = [];
  const names = new Set<string>();
  for (let index = 0; index < count; index++) {
    const info = parseTensorInfo(reader, index);
    if (info.name === "") throw reader.fail(`tensor ${index} has an empty name`);
    if (names.has(info.name)) throw reader.fail(`tensor ${quotedText(info.name)} occurs twice`);
    names.add(info.name);
    infos.push(info);
  }
  return infos;
}

function parseTensorInfo(reader: ByteReader, index: number): RawTensorInfo {
  const name = reader.string(`name of tensor ${index}`, MAX_TENSOR_NAME_BYTES);
  const dimCount = reader.u32(`dimension count of tensor ${quotedText(name)}`);
  if (dimCount < 1 || dimCount > MAX_DIMS) {
    throw reader.fail(`tensor ${quotedText(name)} has ${dimCount} dimensions; expected 1 to ${MAX_DIMS}`);
  }
  const dims: bigint[] = [];
  for (let i = 0; i < dimCount; i++) dims.push(reader.u64(`dimension of tensor ${quotedText(name)}`));
  const typeId = reader.u32(`type of tensor ${quotedText(name)}`);
  const type = findGgmlTypeById(typeId);
  if (type === null) {
    const known = GGML_TYPES.map((entry) => entry.name).join(", ");
    const found = describeGgmlTypeId(typeId);
    throw new Ds4Error(
      "unsupported-type",
      `${reader.sourceName}: tensor ${quotedText(name)} has type ${found}, which is not supported; supported: ${known}`,
    );
  }
  const relativeOffset = reader.size(`offset of tensor ${quotedText(name)}`, Number.MAX_SAFE_INTEGER);
  return { name, type, dims: dims.map(Number), relativeOffset, bytes: tensorBytes(reader, name, dims, type) };
}

/** Size in bytes, computed without overflow; also refuses a zero dimension and a row that splits a block. */
function tensorBytes(reader: ByteReader, name: string, dims: readonly bigint[], type: GgmlTypeInfo): number {
  let values = 1n;
  for (const dim of dims) {
    if (dim < 1n) throw reader.fail(`tensor ${quotedText(name)} has a dimension of 0`);
    values *= dim;
  }
  if (dims[0] % BigInt(type.blockValues) !== 0n) {
    throw reader.fail(
      `tensor ${quotedText(name)}: row length ${dims[0]} is not a multiple of ${type.name}'s block of ${type.blockValues}`,
    );
  }
  const bytes = (values / BigInt(type.blockValues)) * BigInt(type.blockBytes);
  if (bytes > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw reader.fail(`tensor ${quotedText(name)} [${dims.join(", ")}] would take ${bytes} bytes`);
  }
  return Number(bytes);
}

/** Makes offsets absolute and checks every range against the file and against each other. */
export function placeTensors(
  infos: readonly RawTensorInfo[],
  file: { name: string; sizeBytes: number; dataOffset: number; alignmentBytes: number; fileIndex: number },
): TensorInfo[] {
  const tensors = infos.map((info): TensorInfo => {
    const offsetBytes = file.dataOffset + info.relativeOffset;
    if (info.relativeOffset % file.alignmentBytes !== 0) {
      throw new GgufError(
        `${file.name}: tensor ${quotedText(info.name)} starts at data offset ${info.relativeOffset}, not a multiple of the alignment ${file.alignmentBytes}`,
      );
    }
    if (offsetBytes + info.bytes > file.sizeBytes) {
      throw new GgufError(
        `${file.name}: tensor ${quotedText(info.name)} needs bytes ${offsetBytes}..${offsetBytes + info.bytes}, but the file has ${file.sizeBytes}: is it truncated?`,
      );
    }
    return {
      name: info.name,
      type: info.type.name,
      dims: Object.freeze(info.dims),
      fileIndex: file.fileIndex,
      offsetBytes,
      bytes: info.bytes,
    };
  });
  const ordered = [...tensors].sort((a, b) => a.offsetBytes - b.offsetBytes);
  for (let i = 1; i < ordered.length; i++) {
    const [before, after] = [ordered[i - 1], ordered[i]];
    if (before.offsetBytes + before.bytes > after.offsetBytes) {
      throw new GgufError(
        `${file.name}: tensors ${quotedText(before.name)} and ${quotedText(after.name)} overlap`,
        after.offsetBytes,
      );
    }
  }
  return tensors;
}
