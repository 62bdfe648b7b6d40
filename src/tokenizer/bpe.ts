// Byte-pair merging inside one piece: lowest rank first, leftmost on ties. A heap over a linked list keeps a piece of
// n bytes at O(n log n), however repetitive it is. Knows token ids, not text.
import { quotedText } from "../core/quoted-text.ts";
import { MAX_MERGES, TOKEN_TYPE, type TokenizerTables, tokenizerError } from "./tokenizer-tables.ts";

/** Scratch for pieces up to this many bytes is kept between calls; larger ones are given back. */
const KEPT_SCRATCH_BYTES = 1 << 20;
/** Heap keys are rank · 2^32 + position, exact in a double while ranks stay within `MAX_MERGES`. */
const POSITION_RANGE = 2 ** 32;
const NO_RANK = -1;

/** Ranks of pairs of token ids: open addressing in flat arrays, since a Map keyed by numbers of 35 bits is slow. */
export class MergeTable {
  private readonly mask: number;
  private readonly lefts: Int32Array;
  private readonly rights: Int32Array;
  private readonly ranks: Int32Array;
  /** Token made by each rank; 0 for a merge that never fires (its rank is never returned). */
  readonly results: Int32Array;

  /**
   * Builds the table. A merge whose parts or result are no normal tokens never fires; in particular none can make a
   * control or user-defined token. Throws `tokenizer` for a merge that is not `"left right"` or comes twice.
   */
  constructor(tables: TokenizerTables, where: string) {
    const { merges } = tables;
    if (merges.length > MAX_MERGES) throw tokenizerError(where, `more than ${MAX_MERGES} merges`);
    const ids = new Map<string, number>();
    tables.tokens.forEach((token, id) => {
      if (tables.tokenTypes[id] === TOKEN_TYPE.normal) ids.set(token, id);
    });
    let size = 16;
    while (size < merges.length * 2) size *= 2;
    this.mask = size - 1;
    this.lefts = new Int32Array(size);
    this.rights = new Int32Array(size);
    this.ranks = new Int32Array(size).fill(NO_RANK);
    this.results = new Int32Array(merges.length);
    merges.forEach((merge, rank) => {
      const space = merge.indexOf(" ");
      if (space <= 0 || space === merge.length - 1 || merge.indexOf(" ", space + 1) >= 0)
        throw tokenizerError(where, `merge ${rank}: expected "left right", got ${quotedText(merge)}`);
      const leftText = merge.slice(0, space);
      const rightText = merge.slice(space + 1);
      const left = ids.get(leftText);
      const right = ids.get(rightText);
      const result = ids.get(leftText + rightText);
      if (left === undefined || right === undefined || result === undefined) return;
      const slot = this.slotOf(left, right);
      if (this.ranks[slot] !== NO_RANK)
        throw tokenizerError(
          where,
          `merges ${this.ranks[slot]} and ${rank} are the same: ${quotedText(merge)}`,
        );
      this.lefts[slot] = left;
      this.rights[slot] = right;
      this.ranks[slot] = rank;
      this.results[rank] = result;
    });
  }

  /** Rank of merging `left` and `right`, or -1. */
  rankOf(left: number, right: number): number {
    return this.ranks[this.slotOf(left, right)];
  }

  private slotOf(left: number, right: number): number {
    let slot = (Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b)) >>> 0;
    slot = (slot ^ (slot >>> 15)) & this.mask;
    while (this.ranks[slot] !== NO_RANK && (this.lefts[slot] !== left || this.rights[slot] !== right))
      slot = (slot + 1) & this.mask;
    return slot;
  }
}

/** Merges the symbols of one piece. Holds scratch memory, so one instance serves one call at a time. */
export class BytePairMerger {
  /** Symbols of the piece: fill [0, count) before `merge`; the result is left in the same place. */
  symbols = new Int32Array(256);
  /** Heap entries taken since construction: a measure of work for tests. */
  workCount = 0;

  private readonly table: MergeTable;
  private next = new Int32Array(256);
  private previous = new Int32Array(256);
  private pairRanks = new Int32Array(256);
  private heap = new Float64Array(512);
  private heapLength = 0;

  constructor(table: MergeTable) {
    this.table = table;
  }

  /** Makes room for `count` symbols. Earlier contents are lost. */
  reserve(count: number): void {
    const isLarge = this.symbols.length > KEPT_SCRATCH_BYTES;
    if (count <= this.symbols.length && !(isLarge && count <= KEPT_SCRATCH_BYTES)) return;
    const capacity = Math.max(256, 2 ** Math.ceil(Math.log2(count)));
    this.symbols = new Int32Array(capacity);
    this.next = new Int32Array(capacity);
    this.previous = new Int32Array(capacity);
    this.pairRanks = new Int32Array(capacity);
    // Each of the capacity pairs is pushed once at first, then each merge takes one away and pushes at most two.
    this.heap = new Float64Array(capacity * 3);
  }

  /** Merges `symbols[0..count)` in place and returns how many are left. */
  merge(count: number): number {
    if (count < 2) return count;
    const { symbols, next, previous, pairRanks, table } = this;
    this.heapLength = 0;
    for (let i = 0; i < count; i++) {
      next[i] = i + 1;
      previous[i] = i - 1;
      pairRanks[i] = NO_RANK;
    }
    for (let i = 0; i + 1 < count; i++) this.offer(i, i + 1);
    while (this.heapLength > 0) {
      const key = this.pop();
      const rank = Math.floor(key / POSITION_RANGE);
      const left = key - rank * POSITION_RANGE;
      // A pair changed since it was offered: its new rank, if any, has its own entry.
      if (pairRanks[left] !== rank) continue;
      const right = next[left];
      const after = next[right];
      symbols[left] = table.results[rank];
      next[left] = after;
      pairRanks[right] = NO_RANK;
      pairRanks[left] = NO_RANK;
      if (after < count) {
        previous[after] = left;
        this.offer(left, after);
      }
      if (previous[left] >= 0) this.offer(previous[left], left);
    }
    let kept = 0;
    for (let i = 0; i < count; i = next[i]) symbols[kept++] = symbols[i];
    return kept;
  }

  private offer(left: number, right: number): void {
    const rank = this.table.rankOf(this.symbols[left], this.symbols[right]);
    this.pairRanks[left] = rank;
    if (rank !== NO_RANK) this.push(rank * POSITION_RANGE + left);
  }

  private push(key: number): void {
    const { heap } = this;
    let at = this.heapLength++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (heap[parent] <= key) break;
      heap[at] = heap[parent];
      at = parent;
    }
    heap[at] = key;
  }

  private pop(): number {
    const { heap } = this;
    this.workCount++;
    const top = heap[0];
    const last = heap[--this.heapLength];
    const length = this.heapLength;
    let at = 0;
    while (true) {
      let child = 2 * at + 1;
      if (child >= length) break;
      if (child + 1 < length && heap[child + 1] < heap[child]) child++;
      if (heap[child] >= last) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = last;
    return top;
  }
}
