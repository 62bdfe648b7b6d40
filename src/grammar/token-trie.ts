// The bytes of all ordinary tokens as a trie in one row of arrays, walked against an automaton: beginnings that cannot
// be are looked at once for all tokens that share them.
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { TOKEN_TYPE } from "../tokenizer/tokenizer-tables.ts";
import { type Automaton, DEAD } from "./automaton.ts";

/** What is needed of a tokenizer. */
export type Vocabulary = Pick<
  Tokenizer,
  "vocabSize" | "eosId" | "stopIds" | "tables" | "bytesView" | "specialId"
>;

/** A set of token ids, one bit each: bit `id & 31` of word `id >> 5`. */
export type TokenMask = Uint32Array;

/**
 * Longer tokens (some hundred, of blanks and rules mostly) are looked at one by one, so that the walk over all others
 * sees no further than this.
 */
const WALK_BYTES = 24;

/** Trie of a vocabulary. Special, unknown and unused tokens are not in it. */
export class TokenTrie {
  readonly #vocabSize: number;
  /** Nodes in depth-first order: the byte, how deep, where the nodes below end, the first token that ends here or -1. */
  readonly #bytes: Uint8Array;
  readonly #depths: Uint16Array;
  readonly #ends: Int32Array;
  readonly #tokens: Int32Array;
  /** Next token with the same bytes, or -1. */
  readonly #twins: Int32Array;
  readonly #path = new Int32Array(WALK_BYTES + 1);
  readonly #longTokens: { id: number; bytes: Uint8Array }[] = [];

  /** Takes some 0.2 s for 129,280 tokens. */
  constructor(vocabulary: Vocabulary) {
    const { vocabSize, tables } = vocabulary;
    this.#vocabSize = vocabSize;
    const entries: { text: string; id: number }[] = [];
    for (let id = 0; id < vocabSize; id++) {
      const type = tables.tokenTypes[id];
      if (type !== TOKEN_TYPE.normal && type !== TOKEN_TYPE.byte) continue;
      const bytes = vocabulary.bytesView(id);
      if (bytes.length > WALK_BYTES) this.#longTokens.push({ id, bytes });
      else entries.push({ text: Buffer.from(bytes).toString("latin1"), id });
    }
    entries.sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : a.id - b.id));
    let count = 0;
    let last = "";
    for (const { text } of entries) {
      count += text.length - sharedLength(last, text);
      last = text;
    }
    this.#bytes = new Uint8Array(count);
    this.#depths = new Uint16Array(count);
    this.#ends = new Int32Array(count);
    this.#tokens = new Int32Array(count).fill(-1);
    this.#twins = new Int32Array(vocabSize).fill(-1);
    this.#fill(entries);
  }

  /**
   * All ordinary tokens that can follow at `position`. `known` are masks by position, where walks are kept: many
   * positions share one. Fresh memory.
   */
  mask(automaton: Automaton, position: number, known: Map<number, TokenMask>): TokenMask {
    const alike = automaton.alike(position, WALK_BYTES);
    let walked = known.get(alike);
    if (walked === undefined) {
      walked = this.#walk(automaton, alike);
      known.set(alike, walked);
    }
    const mask = walked.slice();
    for (const { id, bytes } of this.#longTokens) {
      if (automaton.run(bytes, position) !== DEAD) mask[id >> 5] |= 1 << (id & 31);
    }
    return mask;
  }

  #walk(automaton: Automaton, position: number): TokenMask {
    const mask = new Uint32Array(Math.ceil(this.#vocabSize / 32));
    const path = this.#path;
    const count = this.#bytes.length;
    path[0] = position;
    for (let node = 0; node < count; ) {
      const depth = this.#depths[node];
      const next = automaton.step(path[depth], this.#bytes[node]);
      if (next === DEAD) {
        node = this.#ends[node];
        continue;
      }
      path[depth + 1] = next;
      for (let id = this.#tokens[node]; id !== -1; id = this.#twins[id]) mask[id >> 5] |= 1 << (id & 31);
      node++;
    }
    return mask;
  }

  #fill(entries: readonly { text: string; id: number }[]): void {
    const open: number[] = [];
    let count = 0;
    let last = "";
    for (const { text, id } of entries) {
      const shared = sharedLength(last, text);
      while (open.length > shared) this.#ends[open.pop()!] = count;
      for (let depth = shared; depth < text.length; depth++) {
        this.#bytes[count] = text.charCodeAt(depth);
        this.#depths[count] = depth;
        open.push(count++);
      }
      const node = open[open.length - 1];
      this.#twins[id] = this.#tokens[node];
      this.#tokens[node] = id;
      last = text;
    }
    while (open.length > 0) this.#ends[open.pop()!] = count;
  }
}

function sharedLength(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return length;
}
