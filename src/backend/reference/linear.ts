// Matrix times activations: the one operation that costs time here. Float32 in and out, float64 sums. Every
// output is summed over the columns in the same order whatever the batch, so results do not depend on chunking.

/**
 * `out[t][r] = sum over c of weight[first + r][c] * input[t][c]`, for `rows` rows of a row-major weight.
 * `input` is [tokens, columns]; the result is a fresh [tokens, rows].
 */
export function linear(
  weight: Float32Array,
  columns: number,
  input: Float32Array,
  first = 0,
  rows = weight.length / columns - first,
): Float32Array {
  const tokens = input.length / columns;
  const out = new Float32Array(tokens * rows);
  const wide = new Float64Array(input); // converted once instead of once per row
  const tiledRows = rows - (rows % 2);
  const tiledTokens = tokens - (tokens % 4);
  for (let row = 0; row < tiledRows; row += 2) {
    for (let token = 0; token < tiledTokens; token += 4) {
      tile2x4(weight, (first + row) * columns, wide, token * columns, columns, out, token * rows + row, rows);
    }
  }
  for (let row = 0; row < rows; row++) {
    const untiled = row < tiledRows ? tiledTokens : 0;
    for (let token = untiled; token < tokens; token++) {
      out[token * rows + row] = dot(weight, (first + row) * columns, wide, token * columns, columns);
    }
  }
  return out;
}

/** Two weight rows times four tokens: eight sums in flight hide the latency that one sum would wait for. */
function tile2x4(
  weight: Float32Array,
  rowA: number,
  wide: Float64Array,
  token0: number,
  columns: number,
  out: Float32Array,
  target: number,
  stride: number,
): void {
  const rowB = rowA + columns;
  const token1 = token0 + columns;
  const token2 = token1 + columns;
  const token3 = token2 + columns;
  let a0 = 0;
  let a1 = 0;
  let a2 = 0;
  let a3 = 0;
  let b0 = 0;
  let b1 = 0;
  let b2 = 0;
  let b3 = 0;
  for (let column = 0; column < columns; column++) {
    const a = weight[rowA + column];
    const b = weight[rowB + column];
    const x0 = wide[token0 + column];
    const x1 = wide[token1 + column];
    const x2 = wide[token2 + column];
    const x3 = wide[token3 + column];
    a0 += a * x0;
    a1 += a * x1;
    a2 += a * x2;
    a3 += a * x3;
    b0 += b * x0;
    b1 += b * x1;
    b2 += b * x2;
    b3 += b * x3;
  }
  out[target] = a0;
  out[target + 1] = b0;
  out[target + stride] = a1;
  out[target + stride + 1] = b1;
  out[target + 2 * stride] = a2;
  out[target + 2 * stride + 1] = b2;
  out[target + 3 * stride] = a3;
  out[target + 3 * stride + 1] = b3;
}

function dot(weight: Float32Array, row: number, wide: Float64Array, token: number, columns: number): number {
  let sum = 0;
  for (let column = 0; column < columns; column++) sum += weight[row + column] * wide[token + column];
  return sum;
}

/** Dot product of two float32 vectors. Four partial sums: a long chain of dependent additions is slow. */
export function dotProduct(
  a: Float32Array,
  aStart: number,
  b: Float32Array,
  bStart: number,
  length: number,
): number {
  let s0 = 0;
  let s1 = 0;
  let s2 = 0;
  let s3 = 0;
  const whole = length - (length % 4);
  for (let i = 0; i < whole; i += 4) {
    s0 += a[aStart + i] * b[bStart + i];
    s1 += a[aStart + i + 1] * b[bStart + i + 1];
    s2 += a[aStart + i + 2] * b[bStart + i + 2];
    s3 += a[aStart + i + 3] * b[bStart + i + 3];
  }
  for (let i = whole; i < length; i++) s0 += a[aStart + i] * b[bStart + i];
  return s0 + s1 + (s2 + s3);
}
