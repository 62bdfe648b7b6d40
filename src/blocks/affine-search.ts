// The search behind Q4_K and Q2_K: x ≈ d·s·q − dmin·m with a whole s and m for each sub-block and halves d and dmin
// for the super-block, minimising the weighted squared error.
//   1. for each sub-block: several starting grids over its range, each refitted by weighted least squares;
//   2. d and dmin from the largest scale and min; s and m to whole numbers, trying the neighbours as well;
//   3. d and dmin refitted by least squares over the super-block; then 2 once more.
import { scaleToHalf, type WeightedBlock } from "./block-weights.ts";
import { halfToFloat } from "./half.ts";

/** What a type allows. */
export interface AffineShape {
  /** Values per sub-block. */
  subValues: number;
  /** Quants are 0..maxQuant. */
  maxQuant: number;
  /** s and m are 0..maxScale. */
  maxScale: number;
  /** Starting grids: where quant 0 lies within the range, and what is added to maxQuant to give steps per range. */
  starts: readonly (readonly [low: number, steps: number])[];
}

/** An encoded super-block, ready to pack. */
export interface AffineBlock {
  /** Half bits. */
  d: number;
  dmin: number;
  /** [sub-blocks] */
  s: Uint8Array;
  m: Uint8Array;
  /** [values] */
  q: Uint8Array;
}

/** A sub-block's values and constant sums. */
interface SubBlock {
  x: Float64Array;
  w: Float64Array;
  sumW: number;
  sumWx: number;
  /** The best scale and offset (never positive) found; then the whole numbers that stand for them. */
  scale: number;
  low: number;
  s: number;
  m: number;
}

/** Weighted sums of one assignment of quants. */
interface QuantSums {
  q: number;
  qq: number;
  qx: number;
}

/** Searches one super-block of whole sub-blocks. */
export function searchAffine(shape: AffineShape, block: WeightedBlock): AffineBlock {
  const subs: SubBlock[] = [];
  for (let at = 0; at < block.x.length; at += shape.subValues) {
    const x = block.x.subarray(at, at + shape.subValues);
    subs.push(fitSubBlock(shape, x, block.w.subarray(at, at + shape.subValues)));
  }
  const store = (value: number) => scaleToHalf(value * block.unit);
  const real = (half: number) => halfToFloat(half) / block.unit;
  let d = store(Math.max(...subs.map((sub) => sub.scale)) / shape.maxScale);
  let dmin = store(Math.max(...subs.map((sub) => -sub.low)) / shape.maxScale);
  for (const sub of subs) {
    sub.s = nearestWhole(sub.scale, real(d), shape.maxScale);
    sub.m = nearestWhole(-sub.low, real(dmin), shape.maxScale);
    chooseNeighbour(shape, sub, real(d), real(dmin));
  }
  for (let round = 0; round < 2; round++) {
    const fitted = refitSuperScales(shape, subs, real(d), real(dmin));
    if (fitted !== null) [d, dmin] = fitted.map(store);
    for (const sub of subs) chooseNeighbour(shape, sub, real(d), real(dmin));
  }
  return {
    d,
    dmin,
    s: Uint8Array.from(subs, (sub) => sub.s),
    m: Uint8Array.from(subs, (sub) => sub.m),
    q: Uint8Array.from(block.x, (x, i) => {
      const sub = subs[Math.floor(i / shape.subValues)];
      return quantOf(shape, x + sub.m * real(dmin), inverseOf(sub.s * real(d)));
    }),
  };
}

function inverseOf(scale: number): number {
  return scale > 0 ? 1 / scale : 0;
}

function nearestWhole(wanted: number, unit: number, most: number): number {
  return unit > 0 ? Math.min(most, Math.max(0, Math.round(wanted / unit))) : 0;
}

function quantOf(shape: AffineShape, shifted: number, inverse: number): number {
  return Math.min(shape.maxQuant, Math.max(0, Math.round(shifted * inverse)));
}

function sumsOf(shape: AffineShape, sub: SubBlock, low: number, inverse: number): QuantSums {
  const sums = { q: 0, qq: 0, qx: 0 };
  for (let i = 0; i < sub.x.length; i++) {
    const q = quantOf(shape, sub.x[i] - low, inverse);
    sums.q += sub.w[i] * q;
    sums.qq += sub.w[i] * q * q;
    sums.qx += sub.w[i] * q * sub.x[i];
  }
  return sums;
}

/** The continuous scale and offset with the least error among all starts, each refined by least squares. */
function fitSubBlock(shape: AffineShape, x: Float64Array, w: Float64Array): SubBlock {
  const sub: SubBlock = { x, w, sumW: 0, sumWx: 0, scale: 0, low: 0, s: 0, m: 0 };
  let least = 0;
  let most = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < x.length; i++) {
    sub.sumW += w[i];
    sub.sumWx += w[i] * x[i];
    least = Math.min(least, x[i]);
    most = Math.max(most, x[i]);
  }
  const range = most - least;
  const inverse = range > 1e-7 ? 1 / range : 0;
  let best = Number.NEGATIVE_INFINITY;
  const keepBetter = (low: number, inverseScale: number) => {
    const fit = leastSquares(sub, sumsOf(shape, sub, low, inverseScale));
    if (fit.gain > best) {
      best = fit.gain;
      sub.scale = fit.scale;
      sub.low = fit.low;
    }
  };
  for (const [low, steps] of shape.starts) {
    keepBetter(least + range * low, inverse * (shape.maxQuant + steps));
  }
  for (let round = 0; round < 2; round++) keepBetter(sub.low, inverseOf(sub.scale));
  return sub;
}

/** Scale and offset for fixed quants; `gain` is by how much they lower Σ w x². */
function leastSquares(sub: SubBlock, sums: QuantSums): { scale: number; low: number; gain: number } {
  const determinant = sub.sumW * sums.qq - sums.q * sums.q;
  const solvable = determinant > sub.sumW * sums.qq * 1e-6;
  let scale = solvable ? (sub.sumW * sums.qx - sub.sumWx * sums.q) / determinant : 0;
  let low = solvable
    ? (sums.qq * sub.sumWx - sums.q * sums.qx) / determinant
    : sub.sumWx * inverseOf(sub.sumW);
  if (low > 0) {
    low = 0;
    scale = sums.qx * inverseOf(sums.qq);
  }
  return { scale, low, gain: scale * sums.qx + low * sub.sumWx };
}

/** Moves s and m by at most one each to where the error, with re-chosen quants, is least. */
function chooseNeighbour(shape: AffineShape, sub: SubBlock, d: number, dmin: number): void {
  const { s: s0, m: m0 } = sub;
  let best = Number.POSITIVE_INFINITY;
  for (let s = Math.max(0, s0 - 1); s <= Math.min(shape.maxScale, s0 + 1); s++) {
    for (let m = Math.max(0, m0 - 1); m <= Math.min(shape.maxScale, m0 + 1); m++) {
      const error = errorOf(shape, sub, s * d, m * dmin);
      if (error < best) {
        best = error;
        sub.s = s;
        sub.m = m;
      }
    }
  }
}

function errorOf(shape: AffineShape, sub: SubBlock, scale: number, min: number): number {
  const inverse = inverseOf(scale);
  let error = 0;
  for (let i = 0; i < sub.x.length; i++) {
    const shifted = sub.x[i] + min;
    const off = shifted - scale * quantOf(shape, shifted, inverse);
    error += sub.w[i] * off * off;
  }
  return error;
}

/** The best d and dmin for the s, m and quants at hand; null where the old ones should stay. */
function refitSuperScales(
  shape: AffineShape,
  subs: SubBlock[],
  d: number,
  dmin: number,
): [d: number, dmin: number] | null {
  let [aa, am, mm, ax, mx] = [0, 0, 0, 0, 0];
  for (const sub of subs) {
    const sums = sumsOf(shape, sub, -sub.m * dmin, inverseOf(sub.s * d));
    aa += sub.s * sub.s * sums.qq;
    am += sub.s * sub.m * sums.q;
    mm += sub.m * sub.m * sub.sumW;
    ax += sub.s * sums.qx;
    mx += sub.m * sub.sumWx;
  }
  const determinant = aa * mm - am * am;
  if (determinant > 1e-6 * aa * mm) {
    const fitted: [number, number] = [(mm * ax - am * mx) / determinant, (am * ax - aa * mx) / determinant];
    return fitted[0] > 0 && fitted[1] > 0 ? fitted : null;
  }
  return aa > 0 && mm === 0 && ax > 0 ? [ax / aa, 0] : null;
}
