// The search behind IQ2_XXS: parts of 32 values with a 4-bit scale, each four groups of eight magnitudes from a grid
// and signs of even parity, minimising the weighted squared error. A scale s is charged, for grid point g, with
// Σ w·((s·g)² − 2·s·g·a): the squared error less the constant Σ w·a².
//   1. for each part: the scale with the least error among several, the grid points chosen exactly for each;
//   2. d from the largest scale; each part's whole scale, trying the neighbours as well;
//   3. d refitted by least squares over the super-block.
import { scaleToHalf, type WeightedBlock } from "./block-weights.ts";
import { halfToFloat } from "./half.ts";
import { IQ2_XXS_GRID } from "./iq2-xxs-grid.ts";

/** An encoded super-block, ready to pack. */
export interface LatticeBlock {
  /** Half bits. */
  d: number;
  /** [8] whole scales 0..15. */
  levels: Uint8Array;
  /** [32] grid indices. */
  points: Uint8Array;
  /** [32] sign bits of eight values each, 1 = minus, an even number of them. */
  signs: Uint8Array;
}

const GRID_POINTS = 256;
const LEVELS = [8, 25, 43];
const MAX_LEVEL = 15;
/** Trial scales in units of the part's weighted root mean square, and the one for the first choice of flips. */
const STARTS = [0.025, 0.03, 0.036, 0.042, 0.05, 0.06];
const FLIP_START = 0.042;

/** Offsets of each grid point's halves in the cost tables: base-3 codes of coordinates 0..3 and 4..7. */
const FIRST_CODES = halfCodes(0);
const LAST_CODES = halfCodes(4);
const costTables = [new Float64Array(81), new Float64Array(81)];

function halfCodes(from: number): Uint8Array {
  return Uint8Array.from({ length: GRID_POINTS }, (_, point) => {
    let code = 0;
    for (let i = from; i < from + 4; i++) code = 3 * code + LEVELS.indexOf(IQ2_XXS_GRID[8 * point + i]);
    return code;
  });
}

/** Eight values. */
interface Group {
  /** Magnitudes. */
  x: Float64Array;
  w: Float64Array;
  /** Magnitudes as they can be stored: negative where the sign will be wrong. */
  a: Float64Array;
  /** Minuses of the values. */
  signs: number;
  /** The value whose sign is stored wrongly so that the number of minuses is even; −1 where it is even. */
  flipped: number;
  point: number;
}

/** Searches one super-block of 256 values. */
export function searchLattice(block: WeightedBlock): LatticeBlock {
  const parts: Group[][] = [];
  for (let at = 0; at < block.x.length; at += 32) {
    parts.push([0, 8, 16, 24].map((offset) => groupAt(block, at + offset)));
  }
  const scales = parts.map(freeScale);
  const firstD = scaleToHalf(((Math.max(...scales) * 8) / (2 * MAX_LEVEL + 1)) * block.unit);
  const real = halfToFloat(firstD) / block.unit;
  const levels = parts.map((part, i) => chooseLevel(part, scales[i], real));
  let ag = 0;
  let gg = 0;
  for (const [i, part] of parts.entries()) {
    const sums = sumsOf(part);
    const factor = levelFactor(levels[i]);
    ag += factor * sums.ag;
    gg += factor * factor * sums.gg;
  }
  // Where 0 is the nearest half, zeros are the better block: the grid has no zero of its own.
  const d = gg > 0 ? scaleToHalf((ag / gg) * block.unit, 0) : 0;
  const groups = parts.flat();
  return {
    d,
    levels: Uint8Array.from(levels),
    points: Uint8Array.from(groups, (group) => group.point),
    signs: Uint8Array.from(groups, ({ signs, flipped }) => (flipped < 0 ? signs : signs ^ (1 << flipped))),
  };
}

/** Scale of whole number `level` in units of d. */
function levelFactor(level: number): number {
  return (0.5 + level) * 0.25;
}

function groupAt(block: WeightedBlock, at: number): Group {
  const x = block.x.slice(at, at + 8);
  let signs = 0;
  let minuses = 0;
  for (let i = 0; i < 8; i++) {
    if (x[i] >= 0) continue;
    x[i] = -x[i];
    signs |= 1 << i;
    minuses++;
  }
  const w = block.w.subarray(at, at + 8);
  return { x, w, a: x.slice(), signs, flipped: minuses % 2 === 0 ? -1 : 0, point: 0 };
}

/**
 * Where the number of minuses is odd, gives the wrong sign to the value that costs least at `scale`: it will be stored
 * at the smallest level instead of near its own.
 */
function chooseFlips(part: Group[], scale: number): void {
  for (const group of part) {
    if (group.flipped < 0) continue;
    let least = Number.POSITIVE_INFINITY;
    for (let i = 0; i < 8; i++) {
      const right = Math.min(...LEVELS.map((level) => (group.x[i] - scale * level) ** 2));
      const cost = group.w[i] * ((group.x[i] + scale * LEVELS[0]) ** 2 - right);
      if (cost < least) {
        least = cost;
        group.flipped = i;
      }
    }
    group.a.set(group.x);
    group.a[group.flipped] = -group.x[group.flipped];
  }
}

/** Costs of all 81 combinations of levels of four coordinates. */
function fillCosts(group: Group, from: number, scale: number, table: Float64Array): void {
  const costs = new Float64Array(12);
  for (let i = 0; i < 4; i++) {
    for (let level = 0; level < 3; level++) {
      const value = scale * LEVELS[level];
      costs[3 * i + level] = group.w[from + i] * value * (value - 2 * group.a[from + i]);
    }
  }
  for (let pair = 0; pair < 9; pair++) {
    const first = costs[Math.floor(pair / 3)] + costs[3 + (pair % 3)];
    for (let code = 0; code < 9; code++) {
      table[9 * pair + code] = first + (costs[6 + Math.floor(code / 3)] + costs[9 + (code % 3)]);
    }
  }
}

/** Sets each group's grid point to the best one, the first of equals; returns the summed cost. */
function choosePoints(part: Group[], scale: number): number {
  const [first, last] = costTables;
  let total = 0;
  for (const group of part) {
    fillCosts(group, 0, scale, first);
    fillCosts(group, 4, scale, last);
    let least = Number.POSITIVE_INFINITY;
    for (let point = 0; point < GRID_POINTS; point++) {
      const cost = first[FIRST_CODES[point]] + last[LAST_CODES[point]];
      if (cost < least) {
        least = cost;
        group.point = point;
      }
    }
    total += least;
  }
  return total;
}

/** Σ w·a·g and Σ w·g² of the chosen points. */
function sumsOf(part: Group[]): { ag: number; gg: number } {
  const sums = { ag: 0, gg: 0 };
  for (const group of part) {
    for (let i = 0; i < 8; i++) {
      const g = IQ2_XXS_GRID[8 * group.point + i];
      sums.ag += group.w[i] * g * group.a[i];
      sums.gg += group.w[i] * g * g;
    }
  }
  return sums;
}

/** The candidate whose chosen points cost least; leaves those points in the part. */
function cheapestOf(part: Group[], candidates: number[], scaleOf: (candidate: number) => number): number {
  let best = candidates[0];
  let least = Number.POSITIVE_INFINITY;
  for (const candidate of candidates) {
    const cost = choosePoints(part, scaleOf(candidate));
    if (cost < least) {
      least = cost;
      best = candidate;
    }
  }
  choosePoints(part, scaleOf(best));
  return best;
}

/** The part's best scale when it need not be whole. Chooses the flips for it. */
function freeScale(part: Group[]): number {
  let wxx = 0;
  let wSum = 0;
  for (const { x, w } of part) {
    for (let i = 0; i < 8; i++) {
      wxx += w[i] * x[i] * x[i];
      wSum += w[i];
    }
  }
  if (wxx === 0) return 0;
  const rms = Math.sqrt(wxx / wSum);
  chooseFlips(part, rms * FLIP_START);
  cheapestOf(part, STARTS, (start) => rms * start);
  const sums = sumsOf(part);
  const scale = Math.max(0, sums.ag / sums.gg);
  chooseFlips(part, scale);
  return scale;
}

/** The whole scale nearest to `scale`, or a neighbour, by the error; chooses flips and points for it. */
function chooseLevel(part: Group[], scale: number, d: number): number {
  const clamp = (level: number) => Math.min(MAX_LEVEL, Math.max(0, level));
  const middle = d > 0 ? clamp(Math.round((4 * scale) / d - 0.5)) : 0;
  const level = cheapestOf(part, [clamp(middle - 1), middle, clamp(middle + 1)], (l) => d * levelFactor(l));
  chooseFlips(part, d * levelFactor(level));
  choosePoints(part, d * levelFactor(level));
  return level;
}
