// The tokens of whole answers, by what came before them and what the client saw of them. Text can be tokenized in more
// ways than one, and clients drop reasoning; rendered anew, an answer's tokens may differ from the sampled ones, and
// everything behind the difference would have to be read again.
import { createHash, type Hash } from "node:crypto";
import { crc32 } from "node:zlib";
import type { AssistantMessage } from "../template/conversation.ts";
import type { PieceBuilder, PromptPiece } from "../template/pieces.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { callKey } from "./call-memory.ts";

/** Most answers remembered. */
export const MAX_REMEMBERED_ANSWERS = 100_000;
/** Most memory of remembered answers: 16 million tokens, less the entries' own cost. */
export const MAX_REMEMBERED_BYTES = 64 << 20;

/** What an entry costs beside its ids: key, slot of the map, object. */
const ENTRY_OVERHEAD_BYTES = 256;
/** First bytes of a serialized memory: name and version. */
const MAGIC = new TextEncoder().encode("ds4answers\x01");
const KEY_BYTES = 32;
/** Key, count of ids and CRC-32 of both and the ids, little-endian. */
const RECORD_HEAD_BYTES = KEY_BYTES + 8;

/** An answer as its client saw it. */
export interface SeenAnswer {
  reasoning: string;
  content: string;
  callIds: readonly string[];
}

/** Identifies the pieces before each answer of one conversation, in order. */
export class PrefixDigest {
  readonly #hash: Hash;
  #count = 0;

  /** `modelId` keeps models apart that share a folder. */
  constructor(modelId: string) {
    this.#hash = createHash("sha256").update(modelId);
  }

  /** Digest of `pieces`, which must begin with those of the call before. */
  at(pieces: readonly PromptPiece[]): string {
    for (; this.#count < pieces.length; this.#count++) {
      const piece = pieces[this.#count];
      const isText = piece.kind === "text";
      this.#hash.update(`${isText ? "text" : "marks"} ${piece.text.length} ${piece.text}`);
      if (piece.kind === "tokens") this.#hash.update(bytesOf(piece.ids));
    }
    return this.#hash.copy().digest("base64url");
  }
}

/** Answers, the least recently used forgotten first. */
export class AnswerMemory {
  /** How often something was remembered. */
  changes = 0;
  readonly #entries = new Map<string, Int32Array>();
  readonly #limitBytes: number;
  #bytes = 0;

  constructor(limitBytes = MAX_REMEMBERED_BYTES) {
    this.#limitBytes = limitBytes;
  }

  get entryCount(): number {
    return this.#entries.size;
  }

  /**
   * Remembers the tokens sampled after the pieces with digest `prefix`; not if the client saw another text than theirs,
   * pieces of it joined over a call for instance.
   */
  remember(prefix: string, answer: SeenAnswer, ids: Int32Array, tokenizer: Tokenizer): void {
    const text = tokenizer.decode(ids);
    if (!text.includes(answer.content) || !text.includes(answer.reasoning)) return;
    this.changes++;
    this.#set(keyOf(prefix, answer), ids);
    // For clients that do not send reasoning back.
    if (answer.reasoning !== "") this.#set(keyOf(prefix, { ...answer, reasoning: "" }), ids);
  }

  /** Writes a message as it was sampled; false if it was not, right behind what `out` holds. */
  replay(
    out: PieceBuilder,
    digest: PrefixDigest,
    message: AssistantMessage,
    content: string,
    tokenizer: Tokenizer,
  ): boolean {
    const pieces = out.boundary();
    if (pieces === undefined || this.#entries.size === 0) return false;
    const callIds = (message.toolCalls ?? []).map(({ id }) => id ?? "");
    if (callIds.includes("")) return false;
    const key = keyOf(digest.at(pieces), { reasoning: message.reasoning ?? "", content, callIds });
    const ids = this.#entries.get(key);
    if (ids === undefined || ids.some((id) => id < 0 || id >= tokenizer.vocabSize)) return false;
    const text = tokenizer.decode(ids);
    if (!text.includes(content.trim())) return false;
    this.#entries.delete(key);
    this.#entries.set(key, ids);
    out.tokens(ids, text);
    return true;
  }

  /** All entries as bytes for a file, the least recently used first. */
  serialize(): Uint8Array {
    const parts: Uint8Array[] = [MAGIC];
    for (const [key, ids] of this.#entries) {
      const head = new Uint8Array(RECORD_HEAD_BYTES);
      head.set(Buffer.from(key, "base64url"));
      const view = new DataView(head.buffer);
      view.setUint32(KEY_BYTES, ids.length, true);
      view.setUint32(KEY_BYTES + 4, checksum(head, bytesOf(ids)), true);
      parts.push(head, bytesOf(ids));
    }
    return Buffer.concat(parts);
  }

  /**
   * Adds what `serialize` wrote. Returns how many records were damaged, and so left out; a foreign file is one. Never
   * throws for what the bytes hold.
   */
  restore(file: Uint8Array): number {
    // A Buffer's `slice` would not copy, and the ids must be aligned.
    const bytes = new Uint8Array(file.buffer, file.byteOffset, file.length);
    if (!MAGIC.every((byte, at) => bytes[at] === byte)) return 1;
    let damagedCount = 0;
    let at = MAGIC.length;
    while (at < bytes.length) {
      const head = bytes.slice(at, at + RECORD_HEAD_BYTES);
      if (head.length < RECORD_HEAD_BYTES) return damagedCount + 1;
      const view = new DataView(head.buffer);
      const end = at + RECORD_HEAD_BYTES + 4 * view.getUint32(KEY_BYTES, true);
      if (end > bytes.length) return damagedCount + 1;
      const payload = bytes.slice(at + RECORD_HEAD_BYTES, end);
      if (checksum(head, payload) === view.getUint32(KEY_BYTES + 4, true)) {
        const key = Buffer.from(head.subarray(0, KEY_BYTES)).toString("base64url");
        this.#set(key, new Int32Array(payload.buffer, 0, payload.length / 4));
      } else damagedCount++;
      at = end;
    }
    return damagedCount;
  }

  #set(key: string, ids: Int32Array): void {
    this.#delete(key);
    if (entryBytes(ids) > this.#limitBytes) return;
    this.#entries.set(key, ids);
    this.#bytes += entryBytes(ids);
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= MAX_REMEMBERED_ANSWERS && this.#bytes <= this.#limitBytes) break;
      this.#delete(oldest);
    }
  }

  #delete(key: string): void {
    const ids = this.#entries.get(key);
    if (ids === undefined) return;
    this.#entries.delete(key);
    this.#bytes -= entryBytes(ids);
  }
}

// Clients trim what they store; blank ends do not make another answer.
function keyOf(prefix: string, { reasoning, content, callIds }: SeenAnswer): string {
  const parts = [prefix, reasoning.trim(), content.trim(), callKey(callIds)];
  return createHash("sha256").update(JSON.stringify(parts)).digest("base64url");
}

function entryBytes(ids: Int32Array): number {
  return ENTRY_OVERHEAD_BYTES + ids.byteLength;
}

function bytesOf(ids: Int32Array): Uint8Array {
  return new Uint8Array(ids.buffer, ids.byteOffset, ids.byteLength);
}

function checksum(head: Uint8Array, payload: Uint8Array): number {
  return crc32(payload, crc32(head.subarray(0, KEY_BYTES + 4)));
}
