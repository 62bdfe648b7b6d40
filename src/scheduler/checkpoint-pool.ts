// Checkpoints in memory: states that a slot can go back to, within a budget of bytes. Compressed rows are only ever
// appended, so states of one timeline share them: a further checkpoint costs its windows and the rows that are new.
import type { KvSection, KvSnapshot } from "../backend/kv-snapshot.ts";
import { longestPrefixOf } from "./token-prefix.ts";

/** A tenth as valuable after two hours without use: agents pause, but rarely for half a day. */
const HALF_LIFE_MS = 36 * 60_000;

interface PackedSection {
  name: string;
  shape: readonly number[];
  /** Consecutive rows; only those of append-only sections are shared between checkpoints. */
  segments: Float32Array[];
}

/** A saved state. Immutable but for its use counts. */
export interface Checkpoint {
  readonly tokens: Int32Array;
  readonly shapeKey: string;
  readonly sections: readonly PackedSection[];
  hits: number;
  lastUsedMs: number;
}

/** See the file's head. Holds at most `limitBytes`; the cheapest to lose goes first. */
export class CheckpointPool {
  readonly limitBytes: number;
  readonly #now: () => number;
  readonly #checkpoints = new Set<Checkpoint>();
  readonly #references = new Map<Float32Array, number>();
  #bytes = 0;
  /** Counters since the start. */
  savedCount = 0;
  evictedCount = 0;

  constructor(limitBytes: number, now: () => number = () => performance.now()) {
    this.limitBytes = limitBytes;
    this.#now = now;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get count(): number {
    return this.#checkpoints.size;
  }

  /** The longest checkpoint that `tokens` begins with, of at most `maxTokens` tokens. Not counted as a use. */
  longestPrefix(tokens: Int32Array, maxTokens = tokens.length): Checkpoint | undefined {
    return longestPrefixOf(this.#checkpoints, tokens, maxTokens);
  }

  /** Whether this very timeline is saved. */
  has(tokens: Int32Array): boolean {
    return this.longestPrefix(tokens)?.tokens.length === tokens.length;
  }

  /**
   * Saves a state, which must be of `tokens` and is owned by the pool from then on. `pinned` is never evicted for it.
   * False when it is saved already or does not fit.
   */
  save(tokens: Int32Array, snapshot: KvSnapshot, pinned?: Checkpoint): boolean {
    if (this.limitBytes <= 0 || tokens.length === 0) return false;
    const parent = this.longestPrefix(tokens);
    if (parent?.tokens.length === tokens.length) return false;
    const checkpoint: Checkpoint = {
      tokens: tokens.slice(),
      shapeKey: snapshot.shapeKey,
      sections: snapshot.sections.map((section, at) => pack(section, parent?.sections[at])),
      hits: 0,
      lastUsedMs: this.#now(),
    };
    const bytes = [...segmentsOf(checkpoint)].reduce((sum, segment) => sum + segment.byteLength, 0);
    if (bytes + checkpoint.tokens.byteLength > this.limitBytes) return false;
    this.#add(checkpoint);
    while (this.#bytes > this.limitBytes) {
      const victim = this.#cheapest(checkpoint, pinned);
      if (victim === undefined) {
        this.drop(checkpoint);
        return false;
      }
      this.drop(victim);
      this.evictedCount++;
    }
    this.savedCount++;
    return true;
  }

  /** The state, in fresh memory; counts as a use. */
  restore(checkpoint: Checkpoint): KvSnapshot {
    checkpoint.hits++;
    checkpoint.lastUsedMs = this.#now();
    const sections = checkpoint.sections.map(({ name, shape, segments }): KvSection => {
      const length = segments.reduce((sum, segment) => sum + segment.length, 0);
      const data = new Float32Array(length);
      let offset = 0;
      for (const segment of segments) {
        data.set(segment, offset);
        offset += segment.length;
      }
      return { name, shape, data };
    });
    return { lengthTokens: checkpoint.tokens.length, shapeKey: checkpoint.shapeKey, sections };
  }

  /** Forgets a checkpoint. Twice is harmless. */
  drop(checkpoint: Checkpoint): void {
    if (!this.#checkpoints.delete(checkpoint)) return;
    this.#bytes -= checkpoint.tokens.byteLength;
    for (const segment of segmentsOf(checkpoint)) {
      const count = this.#references.get(segment)! - 1;
      if (count > 0) this.#references.set(segment, count);
      else {
        this.#references.delete(segment);
        this.#bytes -= segment.byteLength;
      }
    }
  }

  #add(checkpoint: Checkpoint): void {
    this.#checkpoints.add(checkpoint);
    this.#bytes += checkpoint.tokens.byteLength;
    for (const segment of segmentsOf(checkpoint)) {
      const count = this.#references.get(segment) ?? 0;
      this.#references.set(segment, count + 1);
      if (count === 0) this.#bytes += segment.byteLength;
    }
  }

  #cheapest(...kept: (Checkpoint | undefined)[]): Checkpoint | undefined {
    let cheapest: Checkpoint | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const checkpoint of this.#checkpoints) {
      if (kept.includes(checkpoint)) continue;
      const value = this.#value(checkpoint);
      if (value >= least) continue;
      least = value;
      cheapest = checkpoint;
    }
    return cheapest;
  }

  /** Tokens that would have to be read again, by how likely, per byte that its loss would free. */
  #value(checkpoint: Checkpoint): number {
    const { tokens, hits, lastUsedMs } = checkpoint;
    const covered = this.longestPrefix(tokens, tokens.length - 1)?.tokens.length ?? 0;
    const recency = 0.5 ** ((this.#now() - lastUsedMs) / HALF_LIFE_MS);
    let ownBytes = tokens.byteLength;
    for (const segment of segmentsOf(checkpoint)) {
      if (this.#references.get(segment) === 1) ownBytes += segment.byteLength;
    }
    return ((tokens.length - covered) * (1 + hits) * recency) / ownBytes;
  }
}

function* segmentsOf(checkpoint: Checkpoint): Iterable<Float32Array> {
  for (const { segments } of checkpoint.sections) yield* segments;
}

function pack({ name, shape, data }: KvSection, parent: PackedSection | undefined): PackedSection {
  if (!name.endsWith("compressed") || parent?.name !== name) return { name, shape, segments: [owned(data)] };
  const shared = parent.segments.reduce((sum, segment) => sum + segment.length, 0);
  if (shared > data.length) return { name, shape, segments: [owned(data)] };
  if (shared === data.length) return { name, shape, segments: parent.segments };
  return { name, shape, segments: [...parent.segments, data.slice(shared)] };
}

// A view into a larger buffer would keep all of it alive.
function owned(data: Float32Array): Float32Array {
  return data.buffer.byteLength === data.byteLength ? data : data.slice();
}
