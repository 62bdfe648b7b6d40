// Arrays whose memory is really there: the operating system hands out zero pages and backs them at the first write, so
// without a touch a context would still grow the process while it fills, long after "ready".

/** Values per page of four-byte values; larger pages only make some touches needless. */
const PAGE_VALUES = 1024;

/** A zero-filled array, every page of it backed. Throws RangeError when there is no memory. */
export function residentFloats(count: number): Float32Array {
  return touched(new Float32Array(count));
}

/** The same for integers. */
export function residentInts(count: number): Int32Array {
  return touched(new Int32Array(count));
}

function touched<Values extends Float32Array | Int32Array>(values: Values): Values {
  for (let i = 0; i < values.length; i += PAGE_VALUES) values[i] = 0;
  return values;
}
