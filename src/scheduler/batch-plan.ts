// What one forward call holds: a token of every sequence that decodes, and a chunk of one prompt.
import type { Job } from "./job.ts";

/** Tokens of one job in a call. */
export interface BatchEntry {
  job: Job;
  tokens: Int32Array;
  /** Length of the state before the call. */
  fromTokens: number;
  /** False for a decoded token. */
  isChunk: boolean;
}

/** A chunk is never cut below this many tokens for the sake of others: kernels need rows to be efficient. */
const MIN_CHUNK_TOKENS = 16;
/** Weight of the newest measurement. */
const SMOOTHING = 0.25;

/** Learns what a prompt token costs, and sizes chunks so that a step beside decoding takes about `gapMs`. */
export class ChunkPacer {
  readonly #gapMs: number;
  readonly #limitTokens: number;
  #tokenMs = 0;
  #decodeMs = 0;

  constructor(gapMs: number, limitTokens: number) {
    this.#gapMs = gapMs;
    this.#limitTokens = limitTokens;
  }

  /** Most prompt tokens of a call in which `decoders` sequences decode. */
  chunkTokens(decoders: number): number {
    if (decoders === 0 || this.#tokenMs === 0) return this.#limitTokens;
    const tokens = Math.floor((this.#gapMs - this.#decodeMs) / this.#tokenMs);
    return Math.min(this.#limitTokens, Math.max(MIN_CHUNK_TOKENS, tokens));
  }

  /** Records how long a call took. */
  observe(entries: readonly BatchEntry[], elapsedMs: number): void {
    const chunk = entries.find((entry) => entry.isChunk);
    if (chunk === undefined) this.#decodeMs = smooth(this.#decodeMs, elapsedMs);
    else {
      const own = entries.length > 1 ? Math.max(0, elapsedMs - this.#decodeMs) : elapsedMs;
      this.#tokenMs = smooth(this.#tokenMs, own / chunk.tokens.length);
    }
  }
}

/**
 * Picks the prompt that gets the next chunk: the oldest, but every second time one that is done within `chunkTokens`.
 * So a short request waits for two chunks at most, and a long prompt never gets less than half of them.
 */
export function nextPrefill(prefilling: readonly Job[], chunkTokens: number, turn: number): Job | undefined {
  const byArrival = [...prefilling].sort((a, b) => a.arrivedMs - b.arrivedMs || a.id - b.id);
  const short = (job: Job) => job.promptTokens.length - job.slot!.lengthTokens <= chunkTokens;
  return (turn % 2 === 1 ? byArrival.find(short) : undefined) ?? byArrival[0];
}

function smooth(mean: number, value: number): number {
  return mean === 0 ? value : mean + SMOOTHING * (value - mean);
}
