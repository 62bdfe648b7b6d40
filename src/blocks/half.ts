// Half and brain floats to float32 and back, bit-exact, subnormals kept, round to nearest even.

const scratch = new DataView(new ArrayBuffer(4));

/** All 65,536 half values; built once. Index = bits. */
const HALF_VALUES = buildHalfValues();

function buildHalfValues(): Float32Array {
  const values = new Float32Array(65_536);
  for (let bits = 0; bits < 65_536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 0) values[bits] = sign * fraction * 2 ** -24;
    else if (exponent === 31) values[bits] = fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
    else values[bits] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return values;
}

/** IEEE half bits to a number. */
export function halfToFloat(bits: number): number {
  return HALF_VALUES[bits];
}

/** A number to half bits: nearest, ties to even; overflow becomes infinity. */
export function floatToHalf(value: number): number {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00; // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00; // rounds beyond 65504
  if (magnitude < 0x38800000) {
    // Subnormal half: adding 0.5 leaves the rounded multiple of 2^-24 in the low fraction bits.
    scratch.setUint32(0, magnitude);
    const shifted = Math.fround(scratch.getFloat32(0) + 0.5);
    scratch.setFloat32(0, shifted);
    return sign | (scratch.getUint32(0) - 0x3f000000);
  }
  const roundedUp = magnitude + 0xfff + ((magnitude >>> 13) & 1);
  return sign | ((roundedUp - 0x38000000) >>> 13);
}

/** bfloat16 bits to a number. */
export function bfloatToFloat(bits: number): number {
  scratch.setUint32(0, bits << 16);
  return scratch.getFloat32(0);
}

/** A number to bfloat16 bits: nearest, ties to even. */
export function floatToBfloat(value: number): number {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40; // keep NaN a NaN
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** Half at `offset` of little-endian bytes. */
export function readHalf(bytes: Uint8Array, offset: number): number {
  return HALF_VALUES[bytes[offset] | (bytes[offset + 1] << 8)];
}

/** Stores a half at `offset`, little-endian; returns the value that was really stored. */
export function writeHalf(bytes: Uint8Array, offset: number, value: number): number {
  const bits = floatToHalf(value);
  bytes[offset] = bits & 255;
  bytes[offset + 1] = bits >> 8;
  return HALF_VALUES[bits];
}
