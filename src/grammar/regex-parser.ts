// Reads the part of JavaScript's regular expressions that schemas use into a tree. What the tree cannot say is refused
// by name: look-around, back references, word boundaries, anchors in the middle.
import { ALL, type CodePointSet, codePointSet, codePointsOf, complement } from "./code-points.ts";
import { GrammarError } from "./grammar-error.ts";

/** A regular expression without anchors. */
export type RegexNode =
  | { kind: "char"; set: CodePointSet }
  | { kind: "sequence"; parts: RegexNode[] }
  | { kind: "choice"; options: RegexNode[] }
  | { kind: "repeat"; part: RegexNode; min: number; max: number };

/** Deepest nesting of groups. */
const MAX_DEPTH = 64;

const DIGITS = codePointSet([[48, 57]]);
const WORDS = codePointSet([...DIGITS, [65, 90], [95, 95], [97, 122]]);
const SPACES = codePointsOf(
  "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
);
const LINE_ENDS = codePointsOf("\n\r\u2028\u2029");
const CLASSES: Readonly<Record<string, CodePointSet>> = {
  d: DIGITS,
  D: complement(DIGITS),
  w: WORDS,
  W: complement(WORDS),
  s: SPACES,
  S: complement(SPACES),
};
const CONTROL_ESCAPES: Readonly<Record<string, string>> = {
  n: "\n",
  r: "\r",
  t: "\t",
  f: "\f",
  v: "\v",
  "0": "\0",
};

/**
 * The tree of `pattern`, which finds a match anywhere unless it says `^` and `$`: what may stand around it is part of
 * the tree. Throws `GrammarError` that names what is not supported or not valid.
 */
export function parseRegex(pattern: string): RegexNode {
  if (regexOf(pattern) === undefined) throw new GrammarError("", "it is not a valid regular expression");
  return new RegexReader(pattern).whole();
}

/** JavaScript's own, or undefined if it is not valid. Without the flag more escapes are; schemas use both. */
export function regexOf(pattern: string): RegExp | undefined {
  for (const flags of ["u", ""]) {
    try {
      return new RegExp(pattern, flags);
    } catch {
      // not valid with these flags
    }
  }
  return undefined;
}

class RegexReader {
  readonly #chars: readonly string[];
  #at = 0;

  constructor(pattern: string) {
    this.#chars = [...pattern];
  }

  whole(): RegexNode {
    const options: RegexNode[] = [];
    do {
      const isStart = this.#take("^");
      const parts = this.#sequence(0);
      const isEnd = this.#take("$");
      const next = this.#chars[this.#at];
      if (next !== undefined && next !== "|") throw new GrammarError("", "$ is supported at the end only");
      const around: RegexNode = { kind: "repeat", part: { kind: "char", set: ALL }, min: 0, max: Infinity };
      options.push({
        kind: "sequence",
        parts: [...(isStart ? [] : [around]), ...parts, ...(isEnd ? [] : [around])],
      });
    } while (this.#take("|"));
    return { kind: "choice", options };
  }

  #take(char: string): boolean {
    if (this.#chars[this.#at] !== char) return false;
    this.#at++;
    return true;
  }

  #next(): string {
    return this.#chars[this.#at++];
  }

  #choice(depth: number): RegexNode {
    if (depth > MAX_DEPTH) throw new GrammarError("", `groups are nested deeper than ${MAX_DEPTH}`);
    const options: RegexNode[] = [];
    do options.push({ kind: "sequence", parts: this.#sequence(depth) });
    while (this.#take("|"));
    return options.length === 1 ? options[0] : { kind: "choice", options };
  }

  #sequence(depth: number): RegexNode[] {
    const parts: RegexNode[] = [];
    for (;;) {
      const char = this.#chars[this.#at];
      if (char === undefined || char === "|" || char === ")") return parts;
      if (char === "$") {
        if (depth === 0) return parts;
        throw new GrammarError("", "$ is supported at the end only");
      }
      parts.push(this.#repeats(this.#atom(depth)));
    }
  }

  #repeats(part: RegexNode): RegexNode {
    const char = this.#chars[this.#at];
    let bounds: [number, number];
    if (char === "*") bounds = [0, Infinity];
    else if (char === "+") bounds = [1, Infinity];
    else if (char === "?") bounds = [0, 1];
    else if (char === "{") {
      const found = this.#bounds();
      if (found === undefined) return part;
      bounds = found;
    } else return part;
    this.#at++;
    this.#take("?"); // lazy or not, the same texts match
    return { kind: "repeat", part, min: bounds[0], max: bounds[1] };
  }

  /** Leaves the cursor on the closing brace; undefined for a brace that is only a character. */
  #bounds(): [number, number] | undefined {
    const end = this.#chars.indexOf("}", this.#at);
    const text = end === -1 ? "" : this.#chars.slice(this.#at + 1, end).join("");
    if (!/^\d+(,\d*)?$/.test(text)) return undefined;
    this.#at = end;
    const [min, max] = text.split(",");
    if (max === undefined) return [Number(min), Number(min)];
    return [Number(min), max === "" ? Number.POSITIVE_INFINITY : Number(max)];
  }

  #atom(depth: number): RegexNode {
    const char = this.#next();
    if (char === "^") throw new GrammarError("", "^ is supported at the start only");
    if (char === ".") return { kind: "char", set: complement(LINE_ENDS) };
    if (char === "(") return this.#group(depth);
    if (char === "[") return { kind: "char", set: this.#class() };
    if (char !== "\\") return { kind: "char", set: codePointsOf(char) };
    return { kind: "char", set: this.#escape() };
  }

  #group(depth: number): RegexNode {
    if (this.#take("?")) {
      const kind = this.#next();
      const second = this.#chars[this.#at];
      if (kind === "<" && second !== "=" && second !== "!") while (this.#next() !== ">");
      else if (kind !== ":") throw new GrammarError("", `(?${kind} is not supported`);
    }
    const node = this.#choice(depth + 1);
    this.#at++; // the closing parenthesis
    return node;
  }

  #class(): CodePointSet {
    const isNegated = this.#take("^");
    const sets: (readonly [number, number])[] = [];
    while (this.#chars[this.#at] !== "]") {
      const low = this.#member();
      if (this.#chars[this.#at] === "-" && this.#chars[this.#at + 1] !== "]") {
        this.#at++;
        const high = this.#member();
        sets.push([low[0][0], high[0][0]]);
      } else sets.push(...low);
    }
    this.#at++;
    const set = codePointSet(sets);
    return isNegated ? complement(set) : set;
  }

  #member(): CodePointSet {
    const char = this.#next();
    if (char !== "\\") return codePointsOf(char);
    if (this.#take("b")) return codePointsOf("\b");
    return this.#escape();
  }

  #escape(): CodePointSet {
    const char = this.#next();
    const known = CLASSES[char];
    if (known !== undefined) return known;
    if (CONTROL_ESCAPES[char] !== undefined) return codePointsOf(CONTROL_ESCAPES[char]);
    if (char === "x") return codePointsOf(String.fromCodePoint(this.#hex(2)));
    if (char === "u") return codePointsOf(String.fromCodePoint(this.#unicode()));
    if (char === "p" || char === "P") return this.#property(char);
    if (/[^A-Za-z0-9]/.test(char)) return codePointsOf(char);
    throw new GrammarError("", `\\${char} is not supported`);
  }

  #unicode(): number {
    if (!this.#take("{")) return this.#hex(4);
    const end = this.#chars.indexOf("}", this.#at);
    const code = this.#hex(end - this.#at);
    this.#at++;
    return code;
  }

  #hex(length: number): number {
    const text = this.#chars.slice(this.#at, this.#at + length).join("");
    this.#at += length;
    return Number.parseInt(text, 16);
  }

  #property(letter: string): CodePointSet {
    const end = this.#chars.indexOf("}", this.#at);
    const name = this.#chars.slice(this.#at, end + 1).join("");
    this.#at = end + 1;
    return propertySet(`\\${letter}${name}`);
  }
}

/** Most sets of properties kept: there are some hundred properties. */
const KEPT_PROPERTIES = 64;
const properties = new Map<string, CodePointSet>();
let everyChar: string | undefined;

/** Members of a Unicode property, found by one search through a text of all characters. */
function propertySet(escaped: string): CodePointSet {
  const known = properties.get(escaped);
  if (known !== undefined) return known;
  everyChar ??= ALL.map(([low, high]) => textOfRange(low, high)).join("");
  const ranges: [number, number][] = [];
  for (const { index, 0: run } of everyChar.matchAll(new RegExp(`${escaped}+`, "gu"))) {
    // Neighbours in the text are neighbours in number, but for the gap of the surrogates, which no set has.
    const last = run.length - (/[\udc00-\udfff]$/.test(run) ? 2 : 1);
    ranges.push([everyChar.codePointAt(index)!, run.codePointAt(last)!]);
  }
  const set = codePointSet(ranges);
  if (properties.size < KEPT_PROPERTIES) properties.set(escaped, set);
  return set;
}

function textOfRange(low: number, high: number): string {
  let text = "";
  for (let code = low; code <= high; code++) text += String.fromCodePoint(code);
  return text;
}
