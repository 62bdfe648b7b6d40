// The largest values of a row, in order: one pass over all of it, a second over the runs that can hold them.
import { assert } from "./errors.ts";

/** A key is the value's rank above so many bits of its place: together they fill a double's 53. */
const PLACE_BITS = 21;
const PLACES = 2 ** PLACE_BITS;
/** Ranks compare as unsigned numbers: 1 above +Infinity is none. */
const NAN_RANK = 0xffffffff;
const ZERO_RANK = 0x80000000;
/** Runs per wanted value: more runs leave less to the second pass. */
const RUNS_PER_VALUE = 4;

/** The largest values of a row with their places in it. */
export interface LargestValues {
  /** Values descending, equal ones (both zeros are) by place; NaN before everything. */
  places: Int32Array;
  values: Float32Array;
}

/** The `count` largest of `values`, all of them if there are fewer. At most 2^21 values. */
export function largestValues(values: Float32Array, count: number): LargestValues {
  assert(values.length <= PLACES, `${values.length} values, at most ${PLACES}`);
  const wanted = Math.min(count, values.length);
  const keys = candidateKeys(values, wanted).sort();
  const best = { places: new Int32Array(wanted), values: new Float32Array(wanted) };
  for (let i = 0; i < wanted; i++) {
    const place = PLACES - 1 - (keys[keys.length - 1 - i] % PLACES);
    best.places[i] = place;
    best.values[i] = values[place];
  }
  return best;
}

/** Keys of at least the `wanted` largest values: larger for larger values, and among equal ones for earlier places. */
function candidateKeys(values: Float32Array, wanted: number): Float64Array {
  const { length } = values;
  const runs = Math.min(length, RUNS_PER_VALUE * wanted);
  if (runs === 0) return new Float64Array(0);
  const run = Math.ceil(length / runs);
  const largest = new Float32Array(Math.ceil(length / run));
  for (let i = 0; i < largest.length; i++) largest[i] = largestOf(values, i * run, (i + 1) * run);
  // So many runs hold a value of at least this, or NaN, so nothing less is among the largest.
  const least = nthLargest(largest.slice(), wanted);
  const bits = new Uint32Array(values.buffer, values.byteOffset, length);
  const keys: number[] = [];
  let equal = 0;
  for (let i = 0; i < largest.length; i++) {
    if (largest[i] < least) continue;
    const end = Math.min(length, (i + 1) * run);
    for (let place = i * run; place < end; place++) {
      const value = values[place];
      // Of equal values the first ones are enough: a masked row is full of them.
      if (value < least || (value === least && equal++ >= wanted)) continue;
      keys.push(rankOf(bits[place]) * PLACES + (PLACES - 1 - place));
    }
  }
  return Float64Array.from(keys);
}

/** +Infinity also where there is NaN. */
function largestOf(values: Float32Array, from: number, to: number): number {
  const end = Math.min(values.length, to);
  let largest = -Infinity;
  for (let place = from; place < end; place++) {
    const value = values[place];
    if (value <= largest) continue;
    if (Number.isNaN(value)) return Infinity;
    largest = value;
  }
  return largest;
}

/** The value at `nth` - 1 in descending order, of values without NaN, whose order it changes. */
function nthLargest(values: Float32Array, nth: number): number {
  let first = 0;
  let last = values.length - 1;
  while (first < last) {
    const pivot = values[(first + last) >> 1];
    let left = first;
    let right = last;
    while (left <= right) {
      while (values[left] > pivot) left++;
      while (values[right] < pivot) right--;
      if (left > right) break;
      const value = values[left];
      values[left++] = values[right];
      values[right--] = value;
    }
    // Between `right` and `left` everything equals the pivot.
    if (nth - 1 <= right) last = right;
    else if (nth - 1 >= left) first = left;
    else break;
  }
  return values[nth - 1];
}

/** Bits of a float32 as a number in the order of floats. */
function rankOf(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return NAN_RANK;
  if (bits === ZERO_RANK) return ZERO_RANK; // -0
  return bits > ZERO_RANK ? ~bits >>> 0 : bits + ZERO_RANK;
}
