// A saved KV state as a file. Little-endian: 64 bytes of fixed head, the header JSON, token ids as int32, then the
// snapshot as `kv-snapshot-codec.ts` writes it (section table, sections, checksum). Reading trusts nothing.
//
//   0 magic "DS4KVF01"   8 u32 CRC of bytes 16..64 and header and tokens   12 u32 hits (advisory, in no checksum)
//  16 u32 version   20 u32 header bytes   24 u32 tokens   28 u32 zero   32 u64 snapshot bytes   40 24 zero bytes
import { createHash } from "node:crypto";
import { crc32 } from "node:zlib";
import type { KvSnapshot } from "../backend/kv-snapshot.ts";
import { decodeKvSnapshot, encodeKvSnapshot } from "../backend/kv-snapshot-codec.ts";
import { Ds4Error } from "../core/errors.ts";
import type { SaveReason } from "./kv-disk-types.ts";

const MAGIC = "DS4KVF01";
const VERSION = 1;
/** Bytes of the fixed head. */
export const HEAD_BYTES = 64;
/** Where the count of hits lies: it is updated in place. */
export const HITS_OFFSET = 12;
const MAX_HEADER_BYTES = 64 * 1024;
/** More than any context; a damaged count must not allocate gigabytes. */
const MAX_TOKENS = 16 * 1024 * 1024;
const REASONS: readonly SaveReason[] = ["cold", "continued", "evicted", "shutdown"];

/** What a file says before its snapshot. */
export interface SavedHeader {
  fingerprint: string;
  reason: SaveReason;
  hits: number;
  tokens: Int32Array;
  /** Of the whole file. */
  fileBytes: number;
  /** Where the snapshot begins. */
  snapshotOffset: number;
}

/** The name of a state: of the model and the tokens, of nothing else. 40 hexadecimal digits. */
export function stateKey(fingerprint: string, tokens: Int32Array): string {
  const bytes = new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength);
  return createHash("sha256").update(fingerprint).update("\0").update(bytes).digest("hex").slice(0, 40);
}

/** The pieces of a file, to be written one after another. */
export function encodeState(
  fingerprint: string,
  reason: SaveReason,
  tokens: Int32Array,
  snapshot: KvSnapshot,
): Uint8Array[] {
  const payload = encodeKvSnapshot(snapshot);
  const header = new TextEncoder().encode(JSON.stringify({ fingerprint, reason }));
  const front = new Uint8Array(HEAD_BYTES + header.length + tokens.byteLength);
  const view = new DataView(front.buffer);
  front.set(new TextEncoder().encode(MAGIC));
  view.setUint32(16, VERSION, true);
  view.setUint32(20, header.length, true);
  view.setUint32(24, tokens.length, true);
  view.setBigUint64(32, BigInt(payload.length), true);
  front.set(header, HEAD_BYTES);
  front.set(new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength), HEAD_BYTES + header.length);
  view.setUint32(8, crc32(front.subarray(16)), true);
  return [front, payload];
}

/** Bytes that come before the snapshot, from the fixed head. Throws `session` when it is not of this format. */
export function frontBytes(head: Uint8Array, fileBytes: number): number {
  if (head.length < HEAD_BYTES) throw damaged(`it holds ${head.length} bytes only`);
  if (new TextDecoder("latin1").decode(head.subarray(0, 8)) !== MAGIC)
    throw damaged(`it does not start with ${MAGIC}`);
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
  const version = view.getUint32(16, true);
  if (version !== VERSION) throw damaged(`its version is ${version}, expected ${VERSION}`);
  const headerBytes = view.getUint32(20, true);
  const tokens = view.getUint32(24, true);
  if (headerBytes > MAX_HEADER_BYTES || tokens > MAX_TOKENS) {
    throw damaged(`its header of ${headerBytes} bytes or its ${tokens} tokens are past any limit`);
  }
  const front = HEAD_BYTES + headerBytes + 4 * tokens;
  const expected = BigInt(front) + view.getBigUint64(32, true);
  if (BigInt(fileBytes) !== expected) throw damaged(`it has ${fileBytes} bytes, expected ${expected}`);
  return front;
}

/** Reads what precedes the snapshot. Throws `session` when it is damaged or of another model. */
export function decodeFront(front: Uint8Array, fileBytes: number, fingerprint: string): SavedHeader {
  const length = frontBytes(front, fileBytes);
  const bytes = front.subarray(0, length);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < length || crc32(bytes.subarray(16)) !== view.getUint32(8, true)) {
    throw damaged("the checksum of its header does not match");
  }
  const headerBytes = view.getUint32(20, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(HEAD_BYTES, HEAD_BYTES + headerBytes)));
  if (header?.fingerprint !== fingerprint) throw damaged("it belongs to another model");
  if (!REASONS.includes(header.reason)) throw damaged(`its reason is ${JSON.stringify(header.reason)}`);
  const tokens = new Int32Array(bytes.slice(HEAD_BYTES + headerBytes).buffer);
  const hits = view.getUint32(HITS_OFFSET, true);
  return { fingerprint, reason: header.reason, hits, tokens, fileBytes, snapshotOffset: length };
}

/** Reads a whole file. Throws `session` when anything in it is damaged or does not belong together. */
export function decodeState(
  bytes: Uint8Array,
  fingerprint: string,
): { header: SavedHeader; snapshot: KvSnapshot } {
  const header = decodeFront(bytes, bytes.length, fingerprint);
  const snapshot = decodeKvSnapshot(bytes.subarray(header.snapshotOffset));
  if (snapshot.lengthTokens !== header.tokens.length) {
    throw damaged(
      `its state is of ${snapshot.lengthTokens} tokens, its header names ${header.tokens.length}`,
    );
  }
  return { header, snapshot };
}

function damaged(text: string): Ds4Error {
  return new Ds4Error("session", `not a usable saved state: ${text}`);
}
