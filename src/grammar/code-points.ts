// Sets of Unicode code points as sorted ranges, and their UTF-8 spellings.

/** Sorted, disjoint, inclusive ranges. Surrogates are never members. */
export type CodePointSet = readonly (readonly [low: number, high: number])[];

const LAST = 0x10ffff;
const SURROGATES: readonly [number, number] = [0xd800, 0xdfff];

/** The set of all ranges given, in any order and overlapping. */
export function codePointSet(ranges: Iterable<readonly [number, number]>): CodePointSet {
  const out: [number, number][] = [];
  for (const [low, high] of [...ranges].sort((a, b) => a[0] - b[0])) {
    const last = out.at(-1);
    if (last !== undefined && low <= last[1] + 1) last[1] = Math.max(last[1], high);
    else if (low <= high) out.push([low, high]);
  }
  return out.flatMap(withoutSurrogates);
}

function withoutSurrogates([low, high]: [number, number]): [number, number][] {
  const [first, last] = SURROGATES;
  const parts: [number, number][] = [
    [low, Math.min(high, first - 1)],
    [Math.max(low, last + 1), high],
  ];
  if (high < first || low > last) return [[low, high]];
  return parts.filter(([from, to]) => from <= to);
}

/** All code points. */
export const ALL: CodePointSet = codePointSet([[0, LAST]]);

/** What is not in `set`. */
export function complement(set: CodePointSet): CodePointSet {
  const out: [number, number][] = [];
  let next = 0;
  for (const [low, high] of set) {
    if (low > next) out.push([next, low - 1]);
    next = high + 1;
  }
  if (next <= LAST) out.push([next, LAST]);
  return codePointSet(out);
}

/** What is in both. */
export function intersection(a: CodePointSet, b: CodePointSet): CodePointSet {
  return complement(codePointSet([...complement(a), ...complement(b)]));
}

/** Whether `codePoint` is a member. */
export function contains(set: CodePointSet, codePoint: number): boolean {
  return set.some(([low, high]) => codePoint >= low && codePoint <= high);
}

/** The code points of `text` as a set. */
export function codePointsOf(text: string): CodePointSet {
  return codePointSet([...text].map((char) => [char.codePointAt(0)!, char.codePointAt(0)!] as const));
}

/** Ranges of bytes, one per place: together they spell a block of code points. */
export type ByteRanges = readonly (readonly [low: number, high: number])[];

const LENGTH_ENDS = [0x7f, 0x7ff, 0xffff, LAST];

/** UTF-8 spellings of `set`: each entry covers a part of it, all together cover it once. */
export function utf8Ranges(set: CodePointSet): ByteRanges[] {
  const out: ByteRanges[] = [];
  for (const [low, high] of set) {
    let from = low;
    for (const end of LENGTH_ENDS) {
      if (from > end || from > high) continue;
      const to = Math.min(high, end);
      splitBlocks(spell(from), spell(to), [], out);
      from = to + 1;
    }
  }
  return out;
}

/** Splits what lies between two spellings of one length into blocks whose later bytes are free or fixed. */
function splitBlocks(low: number[], high: number[], head: ByteRanges, out: ByteRanges[]): void {
  const [first, ...lowRest] = low;
  const [last, ...highRest] = high;
  if (lowRest.length === 0) {
    out.push([...head, [first, last]]);
    return;
  }
  if (first === last) {
    splitBlocks(lowRest, highRest, [...head, [first, first]], out);
    return;
  }
  const least = lowRest.map(() => 0x80);
  const most = lowRest.map(() => 0xbf);
  const lowIsWhole = lowRest.every((byte) => byte === 0x80);
  const highIsWhole = highRest.every((byte) => byte === 0xbf);
  if (!lowIsWhole) splitBlocks(lowRest, most, [...head, [first, first]], out);
  const from = lowIsWhole ? first : first + 1;
  const to = highIsWhole ? last : last - 1;
  if (from <= to) out.push([...head, [from, to], ...least.map((byte, at) => [byte, most[at]] as const)]);
  if (!highIsWhole) splitBlocks(least, highRest, [...head, [last, last]], out);
}

function spell(codePoint: number): number[] {
  if (codePoint < 0x80) return [codePoint];
  const tail = (shift: number) => 0x80 | ((codePoint >> shift) & 0x3f);
  if (codePoint < 0x800) return [0xc0 | (codePoint >> 6), tail(0)];
  if (codePoint < 0x10000) return [0xe0 | (codePoint >> 12), tail(6), tail(0)];
  return [0xf0 | (codePoint >> 18), tail(12), tail(6), tail(0)];
}
