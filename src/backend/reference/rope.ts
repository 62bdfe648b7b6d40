// Rotary position embedding on the LAST dims of each head, interleaved pairs (2i, 2i+1). Frequencies come from
// `model/rope-frequencies.ts`; YaRN's magnitude factor is never applied in this family.

/**
 * Turns the last `2 * frequencies.length` values of every head in place. `rows` is [positions, heads, headDim];
 * `direction` 1 embeds the position, -1 takes it out again (attention outputs carry their values' rotation).
 */
export function rotate(
  rows: Float32Array,
  headDim: number,
  positions: ArrayLike<number>,
  frequencies: Float32Array,
  direction: 1 | -1,
): void {
  const rowWidth = rows.length / positions.length;
  const pairs = frequencies.length;
  const cos = new Float64Array(pairs);
  const sin = new Float64Array(pairs);
  for (let row = 0; row < positions.length; row++) {
    for (let pair = 0; pair < pairs; pair++) {
      const angle = Math.fround(positions[row] * frequencies[pair]);
      cos[pair] = Math.cos(angle);
      sin[pair] = direction * Math.sin(angle);
    }
    const rowEnd = (row + 1) * rowWidth;
    for (let head = row * rowWidth; head < rowEnd; head += headDim) {
      const tail = head + headDim - 2 * pairs;
      for (let pair = 0; pair < pairs; pair++) {
        const x = rows[tail + 2 * pair];
        const y = rows[tail + 2 * pair + 1];
        rows[tail + 2 * pair] = x * cos[pair] - y * sin[pair];
        rows[tail + 2 * pair + 1] = x * sin[pair] + y * cos[pair];
      }
    }
  }
}
