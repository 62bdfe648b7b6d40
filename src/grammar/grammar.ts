// A grammar over symbols as a network of states: edges that read one symbol, jumps that read nothing, and calls of
// rules, which may repeat. Symbols below 256 are bytes; those above stand for special tokens.
import { GrammarError } from "./grammar-error.ts";

/** Symbols from here on are special tokens: `FIRST_MARK + i` is entry `i` of `Grammar.marks`. */
export const FIRST_MARK = 256;
/** Most states of one grammar; a large schema has some ten thousand. */
export const MAX_STATES = 400_000;
/** Repetitions are counted in 32 bits. */
export const MAX_REPEATS = 2 ** 31 - 1;

/** Reads one symbol of `low..high`. */
export interface Edge {
  low: number;
  high: number;
  to: number;
}

/** Runs a rule `min` to `max` times (`max` may be Infinity), then goes on at `next`. */
export interface Call {
  rule: number;
  min: number;
  max: number;
  next: number;
}

/** A state. A final one ends its rule. */
export interface GrammarState {
  edges: Edge[];
  jumps: number[];
  calls: Call[];
  isFinal: boolean;
}

/** A finished grammar. Rule 0 is the whole; whatever can be entered can also be completed. */
export interface Grammar {
  states: readonly GrammarState[];
  /** First state of each rule. */
  starts: readonly number[];
  /** Texts of the special tokens that are symbols. */
  marks: readonly string[];
}

const encoder = new TextEncoder();

/**
 * Builds a grammar. Methods take the state to go on from and return the one behind what they added, so that a sequence
 * is a chain of calls. Repeated rules must not match the empty text.
 */
export class GrammarBuilder {
  readonly #states: GrammarState[] = [];
  readonly #starts: number[] = [];
  readonly #marks: readonly string[];

  /** `marks` are the special tokens that the grammar may read. The first rule to be added is the whole. */
  constructor(marks: readonly string[] = []) {
    this.#marks = marks;
  }

  /** A new rule and its first state. */
  rule(): { rule: number; start: number } {
    const start = this.state();
    this.#starts.push(start);
    return { rule: this.#starts.length - 1, start };
  }

  /** A rule that is `fill`, from its first state to what `fill` returns. */
  ruleOf(fill: (start: number) => number): number {
    const { rule, start } = this.rule();
    this.final(fill(start));
    return rule;
  }

  /** A new state. Throws `GrammarError` when there are too many. */
  state(): number {
    if (this.#states.length >= MAX_STATES) {
      throw new GrammarError("", `the schema is too large: its grammar has more than ${MAX_STATES} states`);
    }
    this.#states.push({ edges: [], jumps: [], calls: [], isFinal: false });
    return this.#states.length - 1;
  }

  /** Reads one symbol of `low..high`. */
  range(from: number, low: number, high: number, to = this.state()): number {
    this.#states[from].edges.push({ low, high, to });
    return to;
  }

  /** Reads one of the characters of `chars`, all ASCII. */
  anyOf(from: number, chars: string, to = this.state()): number {
    for (const char of chars) this.range(from, char.charCodeAt(0), char.charCodeAt(0), to);
    return to;
  }

  /** Reads exactly `text`, in which the marks are special tokens. */
  text(from: number, text: string, to?: number): number {
    const symbols = this.#symbolsOf(text);
    if (symbols.length === 0) return to === undefined ? from : this.jump(from, to);
    let at = from;
    symbols.forEach((symbol, index) => {
      at = this.range(at, symbol, symbol, index === symbols.length - 1 ? to : undefined);
    });
    return at;
  }

  /** Runs a rule. */
  call(from: number, rule: number, min = 1, max = min, to = this.state()): number {
    this.#states[from].calls.push({ rule, min, max, next: to });
    return to;
  }

  /** Goes on at `to` without reading. */
  jump(from: number, to: number): number {
    if (from !== to) this.#states[from].jumps.push(to);
    return to;
  }

  /** Lets the rule end here. */
  final(state: number): void {
    this.#states[state].isFinal = true;
  }

  /** The grammar without dead ends, or undefined if it matches nothing at all. */
  finish(): Grammar | undefined {
    const states = this.#states;
    const starts = this.#starts;
    const isLive = liveStates(states, starts);
    if (!isLive[starts[0]]) return undefined;
    for (const state of states) {
      state.edges = state.edges.filter(({ to }) => isLive[to]);
      state.jumps = state.jumps.filter((to) => isLive[to]);
      for (const { rule, min, next } of state.calls) {
        if (min === 0 && isLive[next] && !isLive[starts[rule]]) state.jumps.push(next);
      }
      state.calls = state.calls.filter(({ rule, next }) => isLive[next] && isLive[starts[rule]]);
    }
    return { states, starts, marks: this.#marks };
  }

  #symbolsOf(text: string): number[] {
    const hits = this.#marks.map((mark) => text.indexOf(mark)).filter((at) => at !== -1);
    if (hits.length === 0) return [...encoder.encode(text)];
    const at = Math.min(...hits);
    const index = this.#marks.findIndex((mark) => text.startsWith(mark, at));
    const rest = this.#symbolsOf(text.slice(at + this.#marks[index].length));
    return [...encoder.encode(text.slice(0, at)), FIRST_MARK + index, ...rest];
  }
}

/** Which states can reach the end of their rule. */
function liveStates(states: readonly GrammarState[], starts: readonly number[]): boolean[] {
  // Who may become live when a state does.
  const dependents: number[][] = states.map(() => []);
  states.forEach(({ edges, jumps, calls }, from) => {
    for (const { to } of edges) dependents[to].push(from);
    for (const to of jumps) dependents[to].push(from);
    for (const { rule, next } of calls) {
      dependents[next].push(from);
      dependents[starts[rule]].push(from);
    }
  });
  const isLive = states.map(({ isFinal }) => isFinal);
  const work = states.flatMap(({ isFinal }, index) => (isFinal ? index : []));
  for (let at = work.pop(); at !== undefined; at = work.pop()) {
    for (const from of dependents[at]) {
      if (isLive[from]) continue;
      const { edges, jumps, calls } = states[from];
      isLive[from] =
        edges.some(({ to }) => isLive[to]) ||
        jumps.some((to) => isLive[to]) ||
        calls.some(({ rule, min, next }) => isLive[next] && (min === 0 || isLive[starts[rule]]));
      if (isLive[from]) work.push(from);
    }
  }
  return isLive;
}
