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
  const best = keys.subarray(keys.length - wanted).reverse();
  const places = Int32Array.from(best, (key) => PLACES - 1 - (key % PLACES));
  return { places, values: Float32Array.from(places, (place) => values[place]) };
}

/** Keys of at least the `wanted` largest values: larger for larger values, and among equal ones for earlier places. */
function candidateKeys(values: Float32Array, wanted: number): Float64Array {
  const { length } = values;
  const runs = Math.min(length, RUNS_PER_VALUE * wanted);
  if (runs === 0) return new Float64Array(0);
  const run = Math.ceil(length / runs);
  const largest = new Float32Array(Math.ceil(length / run));
  for (let i = 0; i < largest.length; i++) largest[i] = largestOf(values, i * run, (i + 1) * run);
  // So many runs hold a value of at least this, so nothing less is among the largest. NaN is above all, and sorted last.
  const least = largest.slice().sort()[largest.length - wanted];
  const bits = new Uint32Array(values.buffer, values.byteOffset, length);
  const keys: number[] = [];
  for (let i = 0; i < largest.length; i++) {
    if (largest[i] < least) continue;
    const end = Math.min(length, (i + 1) * run);
    for (let place = i * run; place < end; place++) {
      if (!(values[place] < least)) keys.push(rankOf(bits[place]) * PLACES + (PLACES - 1 - place));
    }
  }
  return Float64Array.from(keys);
}

/** NaN if there is one. */
function largestOf(values: Float32Array, from: number, to: number): number {
  const end = Math.min(values.length, to);
  let largest = values[from];
  for (let place = from + 1; place < end; place++) {
    const value = values[place];
    if (value > largest) largest = value;
    else if (Number.isNaN(value)) return value;
  }
  return largest;
}

/** Bits of a float32 as a number in the order of floats. */
function rankOf(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return NAN_RANK;
  if (bits === ZERO_RANK) return ZERO_RANK; // -0
  return bits > ZERO_RANK ? ~bits >>> 0 : bits + ZERO_RANK;
}
