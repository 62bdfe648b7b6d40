// The sign words of the IQ types: seven stored bits give the signs of eight values.

/** The eight sign bits (1 = minus) of a 7-bit sign index: bit 7 makes the number of minuses even. */
export function signBits(index: number): number {
  let parity = index ^ (index >> 4);
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return index | ((parity & 1) << 7);
}
