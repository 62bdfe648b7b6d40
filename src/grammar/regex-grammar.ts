// A regular expression, together with bounds on the length, as states of a grammar. The tree becomes an automaton of
// positions (one per character of the pattern), of which each state is counted up to the length that still matters.
import type { CharRules, Spelling } from "./char-rules.ts";
import type { CodePointSet } from "./code-points.ts";
import type { GrammarBuilder } from "./grammar.ts";
import { GrammarError } from "./grammar-error.ts";
import type { RegexNode } from "./regex-parser.ts";

/** Most characters of a pattern after its repetitions are written out. */
const MAX_POSITIONS = 4000;
/** Most pairs of a position and a length. */
const MAX_COUNTED = 50_000;
/** Most steps from one character of the pattern to another, and from one such pair to another. */
const MAX_STEPS = 200_000;

/** Bounds on the length in characters. */
export interface LengthBounds {
  min: number;
  max: number;
}

interface Part {
  isNullable: boolean;
  first: number[];
  last: number[];
}

/**
 * Adds the texts that match `node` from `from` on and returns the state behind them. Throws `GrammarError` when there are too
 * many states.
 */
export function addRegex(
  builder: GrammarBuilder,
  chars: CharRules,
  node: RegexNode,
  options: { from: number; spelling: Spelling; length: LengthBounds },
): number {
  const { from, spelling, length } = options;
  const positions = new Positions();
  const whole = positions.add(node);
  const end = builder.state();
  const counts = Number.isFinite(length.max) ? length.max : length.min;
  const states = new Map<number, number>();
  const work: { position: number; count: number; state: number }[] = [];
  const stateOf = (position: number, count: number): number => {
    const key = position * (counts + 1) + count;
    const known = states.get(key);
    if (known !== undefined) return known;
    if (states.size >= MAX_COUNTED)
      throw new GrammarError("", `with these bounds on the length it needs more than ${MAX_COUNTED} states`);
    const state = builder.state();
    states.set(key, state);
    work.push({ position, count, state });
    return state;
  };
  const lasts = new Set(whole.last);
  let stepCount = 0;
  const follow = (state: number, nexts: readonly number[], count: number): void => {
    const isLong = Number.isFinite(length.max) && count === counts;
    if (isLong) return;
    stepCount += nexts.length;
    if (stepCount > MAX_STEPS) throw tooManySteps();
    for (const next of nexts) {
      const to = stateOf(next, Math.min(count + 1, counts));
      builder.call(state, chars.of(positions.sets[next], spelling), 1, 1, to);
    }
  };
  if (whole.isNullable && length.min === 0) builder.jump(from, end);
  follow(from, whole.first, 0);
  for (let item = work.pop(); item !== undefined; item = work.pop()) {
    if (lasts.has(item.position) && item.count >= Math.min(length.min, counts)) builder.jump(item.state, end);
    follow(item.state, [...positions.follows[item.position]], item.count);
  }
  return end;
}

function tooManySteps(): GrammarError {
  return new GrammarError("", `it can go on in more than ${MAX_STEPS} ways`);
}

class Positions {
  #stepCount = 0;
  readonly sets: CodePointSet[] = [];
  readonly follows: Set<number>[] = [];

  add(node: RegexNode): Part {
    switch (node.kind) {
      case "char": {
        if (this.sets.length >= MAX_POSITIONS)
          throw new GrammarError(
            "",
            `it has more than ${MAX_POSITIONS} characters when its repetitions are written out`,
          );
        const position = this.sets.push(node.set) - 1;
        this.follows.push(new Set());
        return { isNullable: false, first: [position], last: [position] };
      }
      case "sequence":
        return node.parts.reduce((before: Part, part) => this.#join(before, this.add(part)), EMPTY);
      case "choice": {
        const parts = node.options.map((option) => this.add(option));
        return {
          isNullable: parts.some(({ isNullable }) => isNullable),
          first: parts.flatMap(({ first }) => first),
          last: parts.flatMap(({ last }) => last),
        };
      }
      case "repeat":
        return this.#repeat(node);
    }
  }

  #repeat({ part, min, max }: RegexNode & { kind: "repeat" }): Part {
    if (max === 0) return EMPTY;
    let whole = EMPTY;
    const fixed = max === Number.POSITIVE_INFINITY ? Math.max(min, 1) : max;
    for (let i = 0; i < fixed; i++) {
      const copy = this.add(part);
      const isOptional = i >= min || copy.isNullable;
      if (max === Number.POSITIVE_INFINITY && i === fixed - 1) this.#connect(copy.last, copy.first);
      whole = this.#join(whole, isOptional ? { ...copy, isNullable: true } : copy);
    }
    return whole;
  }

  #join(a: Part, b: Part): Part {
    this.#connect(a.last, b.first);
    return {
      isNullable: a.isNullable && b.isNullable,
      first: a.isNullable ? [...a.first, ...b.first] : a.first,
      last: b.isNullable ? [...a.last, ...b.last] : b.last,
    };
  }

  #connect(lasts: readonly number[], firsts: readonly number[]): void {
    this.#stepCount += lasts.length * firsts.length;
    if (this.#stepCount > MAX_STEPS) throw tooManySteps();
    for (const last of lasts) for (const first of firsts) this.follows[last].add(first);
  }
}

const EMPTY: Part = { isNullable: true, first: [], last: [] };
