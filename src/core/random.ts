// Seeded random numbers: xoshiro128** (Blackman and Vigna), seeded through SplitMix64. Integer
// arithmetic only, so a seed gives the same numbers on every platform.

const MASK64 = (1n << 64n) - 1n;

/** Largest seed: any unsigned 64-bit number. */
export const MAX_SEED = MASK64;

/** A seeded generator. Two of the same seed give the same sequence. */
export class Random {
  #s0: number;
  #s1: number;
  #s2: number;
  #s3: number;

  /** `seed` is taken modulo 2^64. */
  constructor(seed: number | bigint) {
    let state = BigInt(seed) & MASK64;
    const splitMix = (): bigint => {
      state = (state + 0x9e3779b97f4a7c15n) & MASK64;
      let z = state;
      z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK64;
      z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK64;
      return z ^ (z >> 31n);
    };
    const first = splitMix();
    const second = splitMix();
    this.#s0 = Number(first & 0xffffffffn) | 0;
    this.#s1 = Number(first >> 32n) | 0;
    this.#s2 = Number(second & 0xffffffffn) | 0;
    this.#s3 = Number(second >> 32n) | 0;
  }

  /** The next unsigned 32-bit integer. */
  nextUint32(): number {
    const product = Math.imul(this.#s1, 5);
    const result = Math.imul((product << 7) | (product >>> 25), 9);
    const t = this.#s1 << 9;
    this.#s2 ^= this.#s0;
    this.#s3 ^= this.#s1;
    this.#s1 ^= this.#s2;
    this.#s0 ^= this.#s3;
    this.#s2 ^= t;
    this.#s3 = (this.#s3 << 11) | (this.#s3 >>> 21);
    return result >>> 0;
  }

  /** Uniform in [0, 1) with 53 random bits; consumes two integers. */
  nextFloat(): number {
    const high = this.nextUint32() >>> 5;
    const low = this.nextUint32() >>> 6;
    return (high * 67108864 + low) / 9007199254740992;
  }
}
