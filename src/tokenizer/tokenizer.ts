// Text to token ids and back for byte-level BPE with special tokens. Text from people is encoded without special
// tokens unless the caller says otherwise. Knows nothing of file formats nor of chat.

import { BytePairMerger, MergeTable } from "./bpe.ts";
import { BYTE_CHARS, bytesOfAlphabetText } from "./byte-alphabet.ts";
import { type DecodeOptions, StreamingDetokenizer } from "./detokenizer.ts";
import { splitPieces } from "./pre-tokenizer.ts";
import { SpecialMatcher } from "./special-matcher.ts";
import {
  checkTables,
  SPECIAL_TEXT,
  TOKEN_TYPE,
  type TokenizerTables,
  tokenizerError,
} from "./tokenizer-tables.ts";

/** Options of `Tokenizer.encode`. */
export interface EncodeOptions {
  /** Turns texts of special tokens into those tokens. Default false: for text from people it must stay false. */
  allowSpecial?: boolean;
}

/** Longest piece whose result is remembered. From 13 on, V8's substrings keep the whole text alive. */
const MAX_CACHED_CHARS = 12;
/** Remembered pieces; at the limit the cache starts anew. About 10 MB when full. */
const MAX_CACHED_PIECES = 1 << 16;

/** Specials that a reader of the model's output must see even when control tokens are hidden. */
const ALWAYS_SHOWN: readonly string[] = [SPECIAL_TEXT.thinkStart, SPECIAL_TEXT.thinkEnd, SPECIAL_TEXT.dsml];

/** A loaded tokenizer. Not reentrant but free of awaits, so any number of callers in one thread may share it. */
export class Tokenizer {
  readonly vocabSize: number;
  readonly bosId: number;
  readonly eosId: number;
  readonly padId: number | undefined;
  /** Ids that end a generation: the end token, and role marks that the model should never write. */
  readonly stopIds: readonly number[];
  /** The tables it was made from. Do not change them. */
  readonly tables: TokenizerTables;

  private readonly where: string;
  private readonly specialIds = new Map<string, number>();
  private readonly matcher: SpecialMatcher;
  private readonly merger: BytePairMerger;
  private readonly byteIds = new Int32Array(256);
  private readonly cache = new Map<string, Int32Array>();
  private readonly tokenBytesCache: (Uint8Array | undefined)[];
  private output = new Int32Array(1024);
  private outputLength = 0;

  /** Checks and indexes the tables; keeps a reference to them. `where` names their origin in errors (`tokenizer`). */
  constructor(tables: TokenizerTables, where = "tokenizer") {
    checkTables(tables, where);
    this.tables = tables;
    this.where = where;
    this.vocabSize = tables.tokens.length;
    this.bosId = tables.bosId;
    this.eosId = tables.eosId;
    this.padId = tables.padId;
    this.tokenBytesCache = new Array(this.vocabSize).fill(undefined);
    this.merger = new BytePairMerger(new MergeTable(tables, where));
    const normalIds = new Map<string, number>();
    for (let id = 0; id < this.vocabSize; id++) {
      if (this.isSpecial(id)) this.specialIds.set(tables.tokens[id], id);
      else if (tables.tokenTypes[id] === TOKEN_TYPE.normal) normalIds.set(tables.tokens[id], id);
    }
    for (let byte = 0; byte < 256; byte++) {
      const id = normalIds.get(BYTE_CHARS[byte]);
      if (id === undefined)
        throw tokenizerError(
          where,
          `expected a token for every byte; byte ${byte} (${BYTE_CHARS[byte]}) has none`,
        );
      this.byteIds[byte] = id;
    }
    this.matcher = new SpecialMatcher(this.specialIds);
    const roleMarks = [SPECIAL_TEXT.user, SPECIAL_TEXT.assistant, SPECIAL_TEXT.latestReminder];
    const roleIds = roleMarks.map((text) => this.specialId(text)).filter((id) => id !== undefined);
    this.stopIds = [...new Set([this.eosId, ...roleIds])];
  }

  /** Token ids of `text`, without begin or end token. Lone surrogates count as U+FFFD. Fresh memory. */
  encode(text: string, options: EncodeOptions = {}): Int32Array {
    const wellFormed = text.toWellFormed();
    this.outputLength = 0;
    let at = 0;
    if (options.allowSpecial) {
      for (let hit = this.matcher.find(wellFormed, 0); hit; hit = this.matcher.find(wellFormed, at)) {
        this.encodePlain(wellFormed.slice(at, hit.start));
        this.reserveOutput(1);
        this.output[this.outputLength++] = hit.id;
        at = hit.end;
      }
    }
    this.encodePlain(at === 0 ? wellFormed : wellFormed.slice(at));
    const ids = this.output.slice(0, this.outputLength);
    if (this.output.length > 1 << 20) this.output = new Int32Array(1024);
    return ids;
  }

  /** Text of `ids`; bytes that are not UTF-8 come out as U+FFFD. Throws `tokenizer` for an id outside the vocabulary. */
  decode(ids: Iterable<number>, options: DecodeOptions = {}): string {
    const detokenizer = this.createDetokenizer(options);
    const parts: string[] = [];
    for (const id of ids) parts.push(detokenizer.push(id));
    parts.push(detokenizer.end());
    return parts.join("");
  }

  /** A decoder for one stream of tokens that never splits a character. */
  createDetokenizer(options: DecodeOptions = {}): StreamingDetokenizer {
    return new StreamingDetokenizer(this, options);
  }

  /** Bytes that a token stands for. Fresh memory. Throws `tokenizer` for an id outside the vocabulary. */
  tokenBytes(id: number): Uint8Array {
    return this.bytesView(id).slice();
  }

  /** Like `tokenBytes`, but shared memory: read only. */
  bytesView(id: number): Uint8Array {
    const known = this.tokenBytesCache[id];
    if (known !== undefined) return known;
    const bytes = this.makeBytes(id);
    this.tokenBytesCache[id] = bytes;
    return bytes;
  }

  /** The token as the vocabulary spells it: literal for specials, in the byte alphabet for others. */
  tokenText(id: number): string {
    return this.tables.tokens[this.checkId(id)];
  }

  /** Id of a special (control or user-defined) token by its exact text. */
  specialId(text: string): number | undefined {
    return this.specialIds.get(text);
  }

  /** Whether `id` is a control or user-defined token: one that plain text can never produce. */
  isSpecial(id: number): boolean {
    const type = this.tables.tokenTypes[id];
    return type === TOKEN_TYPE.control || type === TOKEN_TYPE.userDefined;
  }

  /** Whether `hideControl` leaves this token out. */
  isHidden(id: number): boolean {
    return (
      this.tables.tokenTypes[id] === TOKEN_TYPE.control && !ALWAYS_SHOWN.includes(this.tables.tokens[id])
    );
  }

  /** Heap steps of BPE since construction: a measure of work that does not depend on the clock. */
  get workCount(): number {
    return this.merger.workCount;
  }

  private encodePlain(text: string): void {
    splitPieces(text, (start, end) => {
      if (end - start > MAX_CACHED_CHARS) {
        // Two steps: making room may replace the symbols array.
        const count = this.mergePiece(text, start, end);
        this.append(this.merger.symbols, count);
        return;
      }
      const piece = text.slice(start, end);
      let ids = this.cache.get(piece);
      if (ids === undefined) {
        const count = this.mergePiece(text, start, end);
        ids = this.merger.symbols.slice(0, count);
        if (this.cache.size >= MAX_CACHED_PIECES) this.cache.clear();
        this.cache.set(piece, ids);
      }
      this.append(ids, ids.length);
    });
  }

  /** Leaves the piece's ids in `merger.symbols` and returns how many. */
  private mergePiece(text: string, start: number, end: number): number {
    const { merger, byteIds } = this;
    merger.reserve((end - start) * 3);
    const { symbols } = merger;
    let count = 0;
    for (let at = start; at < end; at++) {
      const codePoint = text.codePointAt(at)!;
      if (codePoint < 0x80) {
        symbols[count++] = byteIds[codePoint];
        continue;
      }
      if (codePoint < 0x800) {
        symbols[count++] = byteIds[0xc0 | (codePoint >> 6)];
      } else {
        if (codePoint < 0x10000) {
          symbols[count++] = byteIds[0xe0 | (codePoint >> 12)];
        } else {
          symbols[count++] = byteIds[0xf0 | (codePoint >> 18)];
          symbols[count++] = byteIds[0x80 | ((codePoint >> 12) & 63)];
          at++;
        }
        symbols[count++] = byteIds[0x80 | ((codePoint >> 6) & 63)];
      }
      symbols[count++] = byteIds[0x80 | (codePoint & 63)];
    }
    return merger.merge(count);
  }

  private append(ids: Int32Array, count: number): void {
    this.reserveOutput(count);
    for (let i = 0; i < count; i++) this.output[this.outputLength + i] = ids[i];
    this.outputLength += count;
  }

  private reserveOutput(count: number): void {
    if (this.outputLength + count <= this.output.length) return;
    const grown = new Int32Array(Math.max(this.output.length * 2, this.outputLength + count));
    grown.set(this.output.subarray(0, this.outputLength));
    this.output = grown;
  }

  private makeBytes(id: number): Uint8Array {
    const text = this.tables.tokens[this.checkId(id)];
    const type = this.tables.tokenTypes[id];
    if (type === TOKEN_TYPE.byte) return Uint8Array.of(Number.parseInt(text.slice(3, 5), 16));
    const bytes = type === TOKEN_TYPE.normal ? bytesOfAlphabetText(text) : undefined;
    return bytes ?? new TextEncoder().encode(text);
  }

  private checkId(id: number): number {
    if (Number.isInteger(id) && id >= 0 && id < this.vocabSize) return id;
    throw tokenizerError(this.where, `token id ${id} is outside the vocabulary of ${this.vocabSize} tokens`);
  }
}
