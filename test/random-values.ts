// Seeded random numbers for tests.

/** A small seeded generator of 32-bit unsigned integers; the same sequence on every machine. */
export function mulberry32(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
}

/** Normally distributed values (Box–Muller) times `scale`. */
export function gaussianValues(count: number, seed: number, scale = 1): Float32Array {
  const random = mulberry32(seed);
  const uniform = () => (random() + 0.5) / 2 ** 32;
  return new Float32Array(count).map(
    () => scale * Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()),
  );
}
