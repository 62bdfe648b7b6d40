// Remembers how calls were sampled. Clients send calls back as JSON; rendered anew they may differ from what the model
// wrote (blank lines, order, spacing), and everything behind the difference would have to be read again.
import { crc32 } from "node:zlib";
import type { PieceBuilder } from "../template/pieces.ts";
import type { MarkRange, SampledText } from "./events.ts";

/** Most calls remembered. */
export const MAX_REPLAY_ENTRIES = 100_000;
/** Most memory of remembered calls, as `entryBytes` counts it: days of agent work. */
export const MAX_REPLAY_BYTES = 64 << 20;
/** Longest call id, in UTF-16 units. */
export const MAX_CALL_ID_UNITS = 256;

/** What an entry costs beside its text: the map's slot and the objects. */
const ENTRY_OVERHEAD_BYTES = 128;
const MARK_BYTES = 32;
/** First bytes of a serialized map: name and version. */
const MAGIC = new TextEncoder().encode("ds4calls\x01");
/** Length of the payload and its CRC-32, little-endian. */
const RECORD_HEAD_BYTES = 8;

/** Limits of a map, by default `MAX_REPLAY_ENTRIES` and `MAX_REPLAY_BYTES`. */
export interface ReplayLimits {
  entries?: number;
  bytes?: number;
}

/** What came out of serialized bytes. */
export interface RestoredReplay {
  replay: CallReplay;
  /** Records that were damaged, and so left out. A foreign file is one. */
  damagedCount: number;
}

/**
 * Calls by their id, the least recently used forgotten first. The ids must be unguessable and unique: who knows an id
 * gets the text. `set` the text of each `toolCallEnd`; `append` the markup that follows the last one (closing tags), so
 * that the texts of a message's calls, joined in order, are all that was sampled behind its content.
 */
export class CallReplay {
  readonly #limits: Required<ReplayLimits>;
  readonly #entries = new Map<string, SampledText>();
  #bytes = 0;

  constructor(limits: ReplayLimits = {}) {
    this.#limits = {
      entries: limits.entries ?? MAX_REPLAY_ENTRIES,
      bytes: limits.bytes ?? MAX_REPLAY_BYTES,
    };
  }

  /** Calls remembered. */
  get entryCount(): number {
    return this.#entries.size;
  }

  /** Memory of the calls remembered, estimated. */
  get usedBytes(): number {
    return this.#bytes;
  }

  /** Remembers a call. One that is larger than all the map may hold, or has an over-long id, is not remembered. */
  set(callId: string, sampled: SampledText): void {
    this.delete(callId);
    const bytes = entryBytes(callId, sampled);
    if (callId.length > MAX_CALL_ID_UNITS || bytes > this.#limits.bytes || this.#limits.entries < 1) return;
    this.#entries.set(callId, { rawText: sampled.rawText, marks: sampled.marks });
    this.#bytes += bytes;
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#limits.entries && this.#bytes <= this.#limits.bytes) break;
      this.delete(oldest);
    }
  }

  /** Adds text that was sampled right after a remembered call; nothing if the call is not remembered. */
  append(callId: string, sampled: SampledText): void {
    const before = this.#entries.get(callId);
    if (before !== undefined) this.set(callId, joinSampled(before, sampled));
  }

  /** How the call was sampled, or undefined. Counts as a use. */
  get(callId: string): SampledText | undefined {
    const entry = this.#entries.get(callId);
    if (entry === undefined) return undefined;
    this.#entries.delete(callId);
    this.#entries.set(callId, entry);
    return entry;
  }

  /** Forgets a call. */
  delete(callId: string): void {
    const entry = this.#entries.get(callId);
    if (entry === undefined) return;
    this.#bytes -= entryBytes(callId, entry);
    this.#entries.delete(callId);
  }

  /** All entries as bytes for a file, the least recently used first. Each record has its own checksum. */
  serialize(): Uint8Array {
    const encoder = new TextEncoder();
    const parts: Uint8Array[] = [MAGIC];
    for (const [callId, { rawText, marks }] of this.#entries) {
      // JSON keeps lone surrogates, which UTF-8 alone would not.
      const payload = encoder.encode(JSON.stringify([callId, rawText, marks ?? null]));
      const head = new DataView(new ArrayBuffer(RECORD_HEAD_BYTES));
      head.setUint32(0, payload.length, true);
      head.setUint32(4, crc32(payload), true);
      parts.push(new Uint8Array(head.buffer), payload);
    }
    return Buffer.concat(parts);
  }
}

/**
 * Reads what `serialize` wrote. Damaged records are left out, also those that the limits push out are; a file of
 * another kind or version gives an empty map. Never throws for what the bytes hold.
 */
export function deserializeReplay(bytes: Uint8Array, limits: ReplayLimits = {}): RestoredReplay {
  const replay = new CallReplay(limits);
  if (!MAGIC.every((byte, i) => bytes[i] === byte)) return { replay, damagedCount: 1 };
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let damagedCount = 0;
  let at = MAGIC.length;
  while (at < bytes.length) {
    const payloadAt = at + RECORD_HEAD_BYTES;
    const end = payloadAt <= bytes.length ? payloadAt + view.getUint32(at, true) : Number.POSITIVE_INFINITY;
    if (end > bytes.length) {
      damagedCount++;
      break;
    }
    const payload = bytes.subarray(payloadAt, end);
    const record = crc32(payload) === view.getUint32(at + 4, true) ? parseRecord(payload) : undefined;
    if (record === undefined) damagedCount++;
    else replay.set(record.callId, record);
    at = end;
  }
  return { replay, damagedCount };
}

/** Two texts, one sampled right after the other. */
export function joinSampled(first: SampledText, second: SampledText): SampledText {
  const shift = first.rawText.length;
  const marks =
    first.marks && second.marks
      ? [...first.marks, ...second.marks.map(([start, end]): MarkRange => [start + shift, end + shift])]
      : undefined;
  return { rawText: first.rawText + second.rawText, marks };
}

/**
 * Appends sampled text to a prompt: what came from special tokens as special tokens, the rest as text. Where that is
 * not known, every DSML mark and think tag counts as special.
 */
export function replaySampled(out: PieceBuilder, { rawText, marks }: SampledText): void {
  if (marks === undefined) {
    out.wording(rawText);
    return;
  }
  let at = 0;
  for (const [start, end] of marks) {
    out.text(rawText.slice(at, start)).wording(rawText.slice(start, end));
    at = end;
  }
  out.text(rawText.slice(at));
}

function entryBytes(callId: string, { rawText, marks }: SampledText): number {
  return ENTRY_OVERHEAD_BYTES + 2 * (callId.length + rawText.length) + MARK_BYTES * (marks?.length ?? 0);
}

function parseRecord(payload: Uint8Array): ({ callId: string } & SampledText) | undefined {
  let record: unknown;
  try {
    record = JSON.parse(new TextDecoder().decode(payload));
  } catch {
    return undefined;
  }
  if (!Array.isArray(record)) return undefined;
  const [callId, rawText, marks] = record;
  if (typeof callId !== "string" || typeof rawText !== "string") return undefined;
  if (marks !== null && !isMarkList(marks, rawText.length)) return undefined;
  return { callId, rawText, marks: marks ?? undefined };
}

function isMarkList(marks: unknown, length: number): marks is MarkRange[] {
  let last = 0;
  return (
    Array.isArray(marks) &&
    marks.every((mark) => {
      if (!Array.isArray(mark) || mark.length !== 2 || !mark.every(Number.isSafeInteger)) return false;
      const inOrder = mark[0] >= last && mark[1] > mark[0] && mark[1] <= length;
      last = mark[1];
      return inOrder;
    })
  );
}
