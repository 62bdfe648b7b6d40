// Float16 rows of device memory as float32 on the host and back.
import { floatToHalf, halfToFloat } from "../../blocks/half.ts";

/** Values of half bits. */
export function floatsOfHalves(halves: Uint16Array): Float32Array {
  const floats = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i++) floats[i] = halfToFloat(halves[i]);
  return floats;
}

/** Half bits of values, rounded to nearest even. */
export function halvesOfFloats(floats: Float32Array): Uint16Array {
  const halves = new Uint16Array(floats.length);
  for (let i = 0; i < floats.length; i++) halves[i] = floatToHalf(floats[i]);
  return halves;
}
