// The sum under every softmax.

/** Sum of exp(value - max) over a row, in float64 and in the row's order. */
export function sumExp(row: Float32Array, max: number): number {
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += Math.exp(row[i] - max);
  return sum;
}
