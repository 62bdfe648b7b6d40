// Runs a grammar: all the ways to read the text so far at once, each a state with the calls it stands in. Sets of ways
// are numbered and their steps remembered, so that a step taken before is one look into a table.
import { FIRST_MARK, type Grammar } from "./grammar.ts";
import { GrammarError } from "./grammar-error.ts";

/** Most ways followed at once; only schemas made to be hard have more than a few hundred. */
export const MAX_WAYS = 8192;
/** From this many remembered sets on, a clean start is due: some 10 MB. */
export const FULL_POSITIONS = 8192;
/** The same for the ways in all of them. */
const FULL_WAYS = 100_000;
/** What one look at the whole vocabulary may add to that; more is refused, as it would hold up everyone. */
const MAX_NEW_POSITIONS = 32_768;
const MAX_NEW_WAYS = 100_000;

/** No way leads on. */
export const DEAD = -1;
const UNKNOWN = -2;

interface Site {
  rule: number;
  min: number;
  max: number;
  next: number;
}

/** A grammar at work. A position is the number of a set of ways; numbers are valid until `clear`. */
export class Automaton {
  readonly grammar: Grammar;
  readonly #width: number;
  readonly #sites: Site[] = [];
  /** Per state the sites of its calls. */
  readonly #sitesOf: number[][];
  /** Calls under way, as a forest: which site, how often it has run, and the call around it. 0 is none. */
  #frameSites: number[] = [];
  #frameCounts: number[] = [];
  #frameParents: number[] = [];
  /** By site and parent, then by count. */
  #frameIds = new Map<number, Map<number, number>>();
  #items: (readonly number[])[] = [];
  #accepts: boolean[] = [];
  #rows: (Int32Array | undefined)[] = [];
  #positionIds = new Map<string, number>();
  #alike = new Map<number, number>();
  #wayCount = 0;
  /** Counts `clear`s: positions of another generation mean nothing. */
  generation = 0;

  constructor(grammar: Grammar) {
    this.grammar = grammar;
    this.#width = FIRST_MARK + grammar.marks.length;
    this.#sitesOf = grammar.states.map(({ calls }) =>
      calls.map((call) => {
        this.#sites.push(call);
        return this.#sites.length - 1;
      }),
    );
    this.clear();
  }

  /** Position before the first symbol. */
  readonly start = 0;

  /** Whether so much is remembered that `clear` is due. */
  get isFull(): boolean {
    return this.#items.length >= FULL_POSITIONS || this.#wayCount >= FULL_WAYS;
  }

  /** Whether the text may end here. */
  accepts(position: number): boolean {
    return this.#accepts[position];
  }

  /** Whether some symbol can follow. */
  goesOn(position: number): boolean {
    return this.#items[position].length > 0;
  }

  /** Position after `symbol`, or `DEAD`. Throws `GrammarError` when there are too many ways. */
  step(position: number, symbol: number): number {
    let row = this.#rows[position];
    if (row === undefined) {
      row = new Int32Array(this.#width).fill(UNKNOWN);
      this.#rows[position] = row;
    }
    const known = row[symbol];
    if (known !== UNKNOWN) return known;
    const { states } = this.grammar;
    const count = states.length;
    const work: number[] = [];
    for (const item of this.#items[position]) {
      const state = item % count;
      for (const { low, high, to } of states[state].edges) {
        if (symbol >= low && symbol <= high) work.push(item - state + to);
      }
    }
    const next = work.length === 0 ? DEAD : this.#close(work);
    row[symbol] = next;
    return next;
  }

  /** Position after the bytes or symbols, or `DEAD`. */
  run(symbols: Iterable<number>, position: number = this.start): number {
    let at = position;
    for (const symbol of symbols) {
      at = this.step(at, symbol);
      if (at === DEAD) return DEAD;
    }
    return at;
  }

  /**
   * A position from which the next `symbols` symbols (always the same number of one automaton) are possible in the same
   * ways: counts that cannot reach their bounds within them do not differ. So long strings have few positions.
   */
  alike(position: number, symbols: number): number {
    const known = this.#alike.get(position);
    if (known !== undefined) return known;
    const count = this.grammar.states.length;
    const frames = new Map<number, number>([[0, 0]]);
    const frameOf = (frame: number): number => {
      const found = frames.get(frame);
      if (found !== undefined) return found;
      const site = this.#frameSites[frame];
      const done = this.#frameCounts[frame];
      const { min, max } = this.#sites[site];
      const same = min - done > symbols ? 0 : done > min && max - done > symbols ? min : done;
      const mapped = this.#frame(site, same, frameOf(this.#frameParents[frame]));
      frames.set(frame, mapped);
      return mapped;
    };
    const items = this.#items[position].map((item) => {
      const frame = Math.floor(item / count);
      return item - (frame - frameOf(frame)) * count;
    });
    const result = this.#position([...new Set(items)], this.#accepts[position]);
    this.#alike.set(position, result);
    return result;
  }

  /** Forgets all positions. */
  clear(): void {
    this.generation++;
    this.#frameSites = [-1];
    this.#frameCounts = [0];
    this.#frameParents = [0];
    this.#frameIds = new Map();
    this.#items = [];
    this.#accepts = [];
    this.#rows = [];
    this.#positionIds = new Map();
    this.#alike = new Map();
    this.#wayCount = 0;
    this.#close([this.grammar.starts[0]]);
  }

  /** Follows jumps, calls and ends from `work`; an item is `frame * states + state`. Returns the position. */
  #close(work: number[]): number {
    const { states, starts } = this.grammar;
    const count = states.length;
    const seen = new Set<number>(work);
    const items: number[] = [];
    let accepts = false;
    const add = (state: number, frame: number) => {
      const item = frame * count + state;
      if (seen.has(item)) return;
      seen.add(item);
      work.push(item);
    };
    for (let item = work.pop(); item !== undefined; item = work.pop()) {
      if (seen.size > MAX_WAYS) {
        throw new GrammarError("", `the schema is ambiguous in more than ${MAX_WAYS} ways at once`);
      }
      const stateIndex = item % count;
      const frame = Math.floor(item / count);
      const state = states[stateIndex];
      if (state.edges.length > 0) items.push(item);
      for (const to of state.jumps) add(to, frame);
      for (const site of this.#sitesOf[stateIndex]) {
        const { rule, min, max, next } = this.#sites[site];
        if (min === 0) add(next, frame);
        if (max > 0) add(starts[rule], this.#frame(site, 0, frame));
      }
      if (!state.isFinal) continue;
      if (frame === 0) {
        accepts = true;
        continue;
      }
      const site = this.#frameSites[frame];
      const parent = this.#frameParents[frame];
      const { rule, min, max, next } = this.#sites[site];
      // Without an upper bound, counting beyond the lower one would only make positions differ.
      const done = Math.min(this.#frameCounts[frame] + 1, max === Number.POSITIVE_INFINITY ? min : max);
      if (done >= min) add(next, parent);
      if (done < max) add(starts[rule], this.#frame(site, done, parent));
    }
    return this.#position(items, accepts);
  }

  #frame(site: number, done: number, parent: number): number {
    const key = parent * this.#sites.length + site;
    let ids = this.#frameIds.get(key);
    if (ids === undefined) {
      ids = new Map();
      this.#frameIds.set(key, ids);
    }
    const known = ids.get(done);
    if (known !== undefined) return known;
    const id = this.#frameSites.length;
    this.#frameSites.push(site);
    this.#frameCounts.push(done);
    this.#frameParents.push(parent);
    ids.set(done, id);
    return id;
  }

  #position(items: number[], accepts: boolean): number {
    items.sort((a, b) => a - b);
    const key = `${accepts ? "!" : ""}${items.join(",")}`;
    const known = this.#positionIds.get(key);
    if (known !== undefined) return known;
    const id = this.#items.length;
    this.#wayCount += items.length;
    if (id >= FULL_POSITIONS + MAX_NEW_POSITIONS || this.#wayCount >= FULL_WAYS + MAX_NEW_WAYS) {
      throw new GrammarError("", "the schema is too ambiguous: too many ways to go on");
    }
    this.#items.push(items);
    this.#accepts.push(accepts);
    this.#rows.push(undefined);
    this.#positionIds.set(key, id);
    return id;
  }
}
