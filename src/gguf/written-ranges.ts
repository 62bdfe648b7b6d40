// Which bytes of a tensor have been written: pieces may come in any order, but never twice.

/** Disjoint byte ranges, neighbours merged: writing in order keeps one. */
export class WrittenRanges {
  readonly #ranges: { start: number; end: number }[] = [];

  /** Adds `start`..`end` (exclusive). False, and nothing added, when some of it was there before. */
  add(start: number, end: number): boolean {
    if (start === end) return true;
    const ranges = this.#ranges;
    let index = ranges.length;
    while (index > 0 && ranges[index - 1].start > start) index--;
    const before = ranges[index - 1];
    const after = ranges[index];
    if ((before !== undefined && before.end > start) || (after !== undefined && after.start < end))
      return false;
    const joinsBefore = before?.end === start;
    const joinsAfter = after?.start === end;
    if (joinsBefore && joinsAfter) {
      before.end = after.end;
      ranges.splice(index, 1);
    } else if (joinsBefore) before.end = end;
    else if (joinsAfter) after.start = start;
    else ranges.splice(index, 0, { start, end });
    return true;
  }

  /** Bytes from 0 on without a gap. */
  get prefixBytes(): number {
    const first = this.#ranges[0];
    return first?.start === 0 ? first.end : 0;
  }

  /** All bytes added. */
  get totalBytes(): number {
    return this.#ranges.reduce((sum, { start, end }) => sum + end - start, 0);
  }
}
