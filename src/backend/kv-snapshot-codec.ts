// A KV snapshot as bytes and back, for files that outlive the process. Little-endian: 8 bytes of magic, u32 CRC-32
// of all that follows, u32 header length, header JSON, zeros to a multiple of 4, then the sections' float32 values
// in header order. Decoding trusts nothing: every length is checked against the bytes present.
import { crc32 } from "node:zlib";
import { Ds4Error } from "../core/errors.ts";
import type { KvSection, KvSnapshot } from "./kv-snapshot.ts";

const MAGIC = "DS4KV001";
const PREFIX_BYTES = 16;
/** Header JSON: about 60 bytes a section, 13 sections a layer; 1024 layers stay below 1 MiB. */
const MAX_HEADER_BYTES = 4 * 1024 * 1024;
const VALUE_BYTES = 4;

interface Header {
  lengthTokens: number;
  shapeKey: string;
  sections: { name: string; shape: number[] }[];
}

/** Encodes a snapshot. Fresh memory, owned by the caller. */
export function encodeKvSnapshot(snapshot: KvSnapshot): Uint8Array {
  const header: Header = {
    lengthTokens: snapshot.lengthTokens,
    shapeKey: snapshot.shapeKey,
    sections: snapshot.sections.map(({ name, shape }) => ({ name, shape: [...shape] })),
  };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const dataStart = alignToValue(PREFIX_BYTES + text.length);
  const values = snapshot.sections.reduce((total, section) => total + section.data.length, 0);
  const bytes = new Uint8Array(dataStart + values * VALUE_BYTES);
  const view = new DataView(bytes.buffer);
  bytes.set(new TextEncoder().encode(MAGIC));
  view.setUint32(12, text.length, true);
  bytes.set(text, PREFIX_BYTES);
  let offset = dataStart;
  for (const { data } of snapshot.sections) {
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offset);
    offset += data.byteLength;
  }
  view.setUint32(8, crc32(bytes.subarray(12)), true);
  return bytes;
}

/**
 * Decodes what `encodeKvSnapshot` wrote. Throws `session` when the bytes are cut, damaged or something else. Whether
 * the snapshot fits a model is `checkKvSnapshot`'s question.
 */
export function decodeKvSnapshot(bytes: Uint8Array): KvSnapshot {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < PREFIX_BYTES || new TextDecoder().decode(bytes.subarray(0, 8)) !== MAGIC) {
    throw damaged(`it does not start with "${MAGIC}"`);
  }
  const headerBytes = view.getUint32(12, true);
  if (headerBytes > MAX_HEADER_BYTES || PREFIX_BYTES + headerBytes > bytes.length) {
    throw damaged(`its header of ${headerBytes} bytes does not fit into ${bytes.length}`);
  }
  if (crc32(bytes.subarray(12)) !== view.getUint32(8, true)) throw damaged("its checksum does not match");
  const header = parseHeader(bytes.subarray(PREFIX_BYTES, PREFIX_BYTES + headerBytes));
  let offset = alignToValue(PREFIX_BYTES + headerBytes);
  const sections: KvSection[] = header.sections.map(({ name, shape }) => {
    const length = shape.reduce((total, size) => total * size, 1) * VALUE_BYTES;
    if (offset + length > bytes.length) throw damaged(`section "${name}" ends past the last byte`);
    const data = new Float32Array(bytes.slice(offset, offset + length).buffer);
    offset += length;
    return { name, shape, data };
  });
  if (offset !== bytes.length) throw damaged(`${bytes.length - offset} bytes follow the last section`);
  return { lengthTokens: header.lengthTokens, shapeKey: header.shapeKey, sections };
}

function parseHeader(text: Uint8Array): Header {
  let header: Partial<Header> | null;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(text));
  } catch (cause) {
    throw damaged("its header is not JSON", { cause });
  }
  const isSize = (size: unknown) => Number.isSafeInteger(size) && (size as number) >= 0;
  const isSection = (section: Header["sections"][number] | null) =>
    typeof section?.name === "string" && Array.isArray(section.shape) && section.shape.every(isSize);
  if (
    typeof header?.shapeKey !== "string" ||
    !isSize(header.lengthTokens) ||
    !Array.isArray(header.sections) ||
    !header.sections.every(isSection)
  ) {
    throw damaged("its header lacks lengthTokens, shapeKey or sections");
  }
  return header as Header;
}

function damaged(text: string, options?: ErrorOptions): Ds4Error {
  return new Ds4Error("session", `not a usable KV snapshot: ${text}`, options);
}

function alignToValue(bytes: number): number {
  return Math.ceil(bytes / VALUE_BYTES) * VALUE_BYTES;
}
