// RMS norm: x / sqrt(mean(x^2) + epsilon), times a weight where there is one. No mean is subtracted, no bias added.

/**
 * Norms every row of `width` values of `rows`; a fresh array. Without `weight` the norm alone (query heads,
 * hyper-connections).
 */
export function rmsNorm(
  rows: Float32Array,
  width: number,
  epsilon: number,
  weight?: Float32Array,
): Float32Array {
  const out = new Float32Array(rows.length);
  for (let start = 0; start < rows.length; start += width) {
    let squares = 0;
    for (let i = 0; i < width; i++) squares += rows[start + i] * rows[start + i];
    const factor = 1 / Math.sqrt(squares / width + epsilon);
    for (let i = 0; i < width; i++) out[start + i] = rows[start + i] * factor * (weight ? weight[i] : 1);
  }
  return out;
}
