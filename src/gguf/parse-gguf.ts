// From a byte source to a parsed header. Reads the header only, never a weight.
import { Ds4Error, GgufError } from "../core/errors.ts";
import { quotedText } from "../core/quoted-text.ts";
import { alignUp } from "../core/units.ts";
import { alignmentOf } from "./alignment.ts";
import { ByteReader } from "./byte-reader.ts";
import type { ByteSource } from "./byte-source.ts";
import type { GgufFile, MetadataValue, TensorInfo } from "./gguf-file.ts";
import { MAX_KEYS, MAX_TENSORS, MIN_KEY_BYTES, MIN_TENSOR_INFO_BYTES } from "./limits.ts";
import { parseMetadata } from "./metadata-parser.ts";
import { parseTensorInfos, placeTensors } from "./tensor-table.ts";

const MAGIC = 0x46554747; // "GGUF", little-endian
const HEADER_BYTES = 24;

/** One part's header. */
export interface GgufPart {
  source: ByteSource;
  version: 2 | 3;
  alignmentBytes: number;
  metadata: ReadonlyMap<string, MetadataValue>;
  tensors: TensorInfo[];
}

/** Parses a single-part file from any byte source, which the result owns from then on. Throws GgufError. */
export function parseGguf(source: ByteSource): GgufFile {
  return new OpenGgufFile([parsePart(source, 0)]);
}

/** Parses one part; `fileIndex` is stored in its tensors. */
export function parsePart(source: ByteSource, fileIndex: number): GgufPart {
  const reader = new ByteReader(source);
  const version = parseVersion(reader, source);
  const most = (limit: number, smallest: number) => Math.min(limit, Math.floor(reader.leftBytes / smallest));
  const tensorCount = reader.size("tensor count", most(MAX_TENSORS, MIN_TENSOR_INFO_BYTES));
  const keyCount = reader.size("key count", most(MAX_KEYS, MIN_KEY_BYTES));
  const metadata = parseMetadata(reader, keyCount);
  const alignmentBytes = alignmentOf(source.name, metadata);
  const infos = parseTensorInfos(reader, tensorCount);
  const dataOffset = alignUp(reader.offsetBytes, alignmentBytes);
  const place = { name: source.name, sizeBytes: source.sizeBytes, dataOffset, alignmentBytes, fileIndex };
  return { source, version, alignmentBytes, metadata, tensors: placeTensors(infos, place) };
}

function parseVersion(reader: ByteReader, source: ByteSource): 2 | 3 {
  if (source.sizeBytes < HEADER_BYTES) {
    throw new GgufError(`${source.name}: expected a GGUF file, but it has only ${source.sizeBytes} bytes`);
  }
  const magic = reader.u32("magic");
  if (magic !== MAGIC) {
    const hex = magic.toString(16).padStart(8, "0");
    throw reader.fail(
      `expected a GGUF file (magic 46554747), found ${hex}: is this a safetensors or partial file?`,
    );
  }
  const version = reader.u32("version");
  if (version === 2 || version === 3) return version;
  if (version === 0x01000000 || version === 0x02000000 || version === 0x03000000) {
    throw reader.fail("the file is big-endian; only little-endian GGUF files are supported");
  }
  throw reader.fail(`GGUF version ${version} is not supported; expected 2 or 3`);
}

/** The tensors of one or more parts behind the GgufFile interface. */
export class OpenGgufFile implements GgufFile {
  readonly name: string;
  readonly version: 2 | 3;
  readonly alignmentBytes: number;
  readonly metadata: ReadonlyMap<string, MetadataValue>;
  readonly tensors: readonly TensorInfo[];
  readonly parts: readonly string[];
  readonly sizeBytes: number;
  readonly #sources: readonly ByteSource[];
  readonly #byName: ReadonlyMap<string, TensorInfo>;

  /** `parts[0]` holds the metadata. Throws GgufError when two parts hold the same tensor. */
  constructor(parts: readonly GgufPart[]) {
    const [first] = parts;
    this.name = first.source.name;
    this.version = first.version;
    this.alignmentBytes = first.alignmentBytes;
    this.metadata = first.metadata;
    this.tensors = parts.flatMap((part) => part.tensors);
    this.parts = parts.map((part) => part.source.name);
    this.sizeBytes = parts.reduce((sum, part) => sum + part.source.sizeBytes, 0);
    this.#sources = parts.map((part) => part.source);
    const byName = new Map<string, TensorInfo>();
    for (const tensor of this.tensors) {
      const other = byName.get(tensor.name);
      if (other !== undefined) {
        const places = `${this.parts[other.fileIndex]} and ${this.parts[tensor.fileIndex]}`;
        throw new GgufError(`tensor ${quotedText(tensor.name)} occurs in ${places}`);
      }
      byName.set(tensor.name, tensor);
    }
    this.#byName = byName;
  }

  get descriptors(): readonly number[] | undefined {
    const descriptors = this.#sources.map((source) => source.descriptor);
    return descriptors.every((descriptor) => descriptor !== undefined) ? descriptors : undefined;
  }

  tensor(name: string): TensorInfo | undefined {
    return this.#byName.get(name);
  }

  readTensor(tensor: TensorInfo, start = 0, length = tensor.bytes - start): Uint8Array {
    this.#checkRange(tensor, start, length);
    const bytes = new Uint8Array(length);
    this.#sources[tensor.fileIndex].readInto(bytes, tensor.offsetBytes + start);
    return bytes;
  }

  readTensorInto(tensor: TensorInfo, target: Uint8Array, start = 0): void {
    this.#checkRange(tensor, start, target.length);
    this.#sources[tensor.fileIndex].readInto(target, tensor.offsetBytes + start);
  }

  close(): void {
    for (const source of this.#sources) source.close();
  }

  #checkRange(tensor: TensorInfo, start: number, length: number): void {
    if (start < 0 || length < 0 || start + length > tensor.bytes) {
      const asked = `${length} bytes from ${start}`;
      throw new Ds4Error("io", `tensor "${tensor.name}" has ${tensor.bytes} bytes; ${asked} were asked for`);
    }
  }
}
