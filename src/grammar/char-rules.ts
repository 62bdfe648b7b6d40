// One character of a string as a rule, in the two spellings that answers have: within JSON quotes, or raw in a tool
// call's parameter.
import {
  ALL,
  type CodePointSet,
  codePointSet,
  codePointsOf,
  complement,
  contains,
  intersection,
  utf8Ranges,
} from "./code-points.ts";
import type { GrammarBuilder } from "./grammar.ts";

/** How strings are written. */
export type Spelling = "json" | "raw";

const SHORT_ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  "\\": "\\",
  "\b": "b",
  "\f": "f",
  "\n": "n",
  "\r": "r",
  "\t": "t",
};
const CONTROLS = codePointSet([[0, 0x1f]]);
const PLAIN = complement(codePointSet([...CONTROLS, ...codePointsOf('"\\')]));

/** Rules for characters, made when they are first needed. */
export class CharRules {
  readonly #builder: GrammarBuilder;
  readonly #rules = new Map<string, number>();

  constructor(builder: GrammarBuilder) {
    this.#builder = builder;
  }

  /** A digit `0-9`. */
  get digit(): number {
    return this.#rule("digit", (start) => this.#builder.range(start, 48, 57));
  }

  /** Any character; in JSON in every spelling that there is, `\u00e9` too. */
  any(spelling: Spelling): number {
    if (spelling === "raw") return this.of(ALL, "raw");
    return this.#rule("any", (start) => {
      const end = this.#plain(start, PLAIN);
      const escaped = this.#builder.text(start, "\\");
      this.#builder.anyOf(escaped, '"\\/bfnrt', end);
      this.#unicodeEscape(this.#builder.text(escaped, "u"), end);
      return end;
    });
  }

  /** One character of `set`; in JSON as JavaScript's `JSON.stringify` spells it, so that each has one spelling. */
  of(set: CodePointSet, spelling: Spelling): number {
    const key = `${spelling}:${set.map(([low, high]) => `${low}-${high}`).join(",")}`;
    return this.#rule(key, (start) => {
      if (spelling === "raw") return this.#plain(start, set);
      const end = this.#plain(start, intersection(set, PLAIN));
      const rest = intersection(set, complement(PLAIN));
      for (const [low, high] of rest) {
        for (let code = low; code <= high; code++) {
          const short = SHORT_ESCAPES[String.fromCharCode(code)];
          const text = short ?? `u${code.toString(16).padStart(4, "0")}`;
          this.#builder.text(start, `\\${text}`, end);
        }
      }
      return end;
    });
  }

  #plain(from: number, set: CodePointSet): number {
    const end = this.#builder.state();
    for (const block of utf8Ranges(set)) {
      let at = from;
      block.forEach(([low, high], index) => {
        at = this.#builder.range(at, low, high, index === block.length - 1 ? end : undefined);
      });
    }
    return end;
  }

  /** Four digits, or eight with `\u` between them for what lies beyond: never half a pair. */
  #unicodeEscape(from: number, end: number): void {
    const builder = this.#builder;
    const hex = this.#rule("hex", (start) => builder.anyOf(start, "0123456789abcdefABCDEF"));
    builder.call(builder.anyOf(from, "0123456789abcefABCEF"), hex, 3, 3, end);
    const surrogate = builder.anyOf(from, "dD");
    builder.call(builder.anyOf(surrogate, "01234567"), hex, 2, 2, end);
    const low = builder.text(builder.call(builder.anyOf(surrogate, "89abAB"), hex, 2), "\\u");
    builder.call(builder.anyOf(builder.anyOf(low, "dD"), "cdefCDEF"), hex, 2, 2, end);
  }

  #rule(key: string, fill: (start: number) => number): number {
    let rule = this.#rules.get(key);
    if (rule === undefined) {
      rule = this.#builder.ruleOf(fill);
      this.#rules.set(key, rule);
    }
    return rule;
  }
}

/** A word list as a trie of characters. */
interface WordNode {
  next: Map<string, WordNode>;
  isWord: boolean;
}

/**
 * A string that is none of `words`, as a JSON string with its quotes. It may hold no control characters but the five
 * with short escapes.
 */
export function stringExcept(
  builder: GrammarBuilder,
  chars: CharRules,
  words: Iterable<string>,
  from: number,
): number {
  const root: WordNode = { next: new Map(), isWord: false };
  for (const word of words) {
    let node = root;
    for (const char of word) {
      if (!node.next.has(char)) node.next.set(char, { next: new Map(), isWord: false });
      node = node.next.get(char)!;
    }
    node.isWord = true;
  }
  const legal = codePointSet([...complement(CONTROLS), ...codePointsOf("\b\f\n\r\t")]);
  const closing = builder.state();
  const tail = builder.state();
  builder.call(tail, chars.of(legal, "json"), 0, Number.POSITIVE_INFINITY, closing);
  const visit = (node: WordNode, at: number): void => {
    if (!node.isWord) builder.jump(at, closing);
    const known = codePointsOf([...node.next.keys()].join(""));
    builder.call(at, chars.of(intersection(legal, complement(known)), "json"), 1, 1, tail);
    for (const [char, child] of node.next) {
      const code = char.codePointAt(0)!;
      if (contains(legal, code)) visit(child, builder.call(at, chars.of(codePointsOf(char), "json")));
    }
  };
  visit(root, builder.text(from, '"'));
  return builder.text(closing, '"');
}
