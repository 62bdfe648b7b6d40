// Unpacks the lattice grids of the IQ types from their digit strings.

/**
 * Values of a grid: each digit of each white-space separated entry, replaced by `levels[digit]`. Row-major
 * [entries, digits per entry].
 */
export function expandDigits(digits: string, levels: readonly number[]): Uint8Array {
  return Uint8Array.from(digits.replace(/\s+/g, ""), (digit) => levels[Number(digit)]);
}
