// Rows of window ring and compressed entries as the device keeps them (native/cuda/kv-rows.cuh), from and to float32: per
// row the values as float16, then with two parts what those lack, as float16 too.
import { floatToHalf, halfToFloat } from "../../blocks/half.ts";

/** Halves per value: 1 is float16, 2 keeps 22 bits. */
export type RowParts = 1 | 2;

/** Bytes of a half. */
export const HALF_BYTES = 2;

/** Values [rows, width] of half bits [rows, parts, width]. */
export function floatsOfRows(halves: Uint16Array, width: number, parts: RowParts): Float32Array {
  const floats = new Float32Array(halves.length / parts);
  for (let i = 0; i < floats.length; i++) {
    const at = Math.floor(i / width) * (parts - 1) * width + i;
    floats[i] = halfToFloat(halves[at]);
    if (parts === 2) floats[i] += halfToFloat(halves[at + width]);
  }
  return floats;
}

/** Half bits [rows, parts, width] of values [rows, width], rounded to nearest even. */
export function rowsOfFloats(floats: Float32Array, width: number, parts: RowParts): Uint16Array {
  const halves = new Uint16Array(floats.length * parts);
  for (let i = 0; i < floats.length; i++) {
    const at = Math.floor(i / width) * (parts - 1) * width + i;
    halves[at] = floatToHalf(floats[i]);
    if (parts === 2) halves[at + width] = floatToHalf(floats[i] - halfToFloat(halves[at]));
  }
  return halves;
}
