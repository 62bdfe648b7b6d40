// Numbers within bounds, digit by digit. Written without bounds they may have an exponent; within bounds they are
// plain decimals, which compare as texts.
import type { CharRules } from "./char-rules.ts";
import type { GrammarBuilder } from "./grammar.ts";
import { GrammarError } from "./grammar-error.ts";

/** Most digits before the point: what 64-bit readers take. */
const MAX_WHOLE_DIGITS = 18;
/** Most digits behind the point: more than a double holds. */
const MAX_FRACTION_DIGITS = 20;
/** The largest whole part. */
const MAX_WHOLE = 10n ** BigInt(MAX_WHOLE_DIGITS) - 1n;

/** One end of a range. */
export interface NumberBound {
  value: number;
  /** The value itself is outside. */
  isOpen: boolean;
}

/** What numbers are allowed. */
export interface NumberBounds {
  isInteger: boolean;
  low?: NumberBound;
  high?: NumberBound;
}

/** A non-negative decimal: `fraction` are its digits without trailing zeros. */
interface Decimal {
  whole: bigint;
  fraction: string;
  isOpen: boolean;
}

const ZERO: Decimal = { whole: 0n, fraction: "", isOpen: false };

/**
 * Adds the numbers that `bounds` allow from `from` on and returns the state behind them. There may be none. Throws
 * `GrammarError` for a bound too large or too fine to be spelled.
 */
export function addNumber(
  builder: GrammarBuilder,
  chars: CharRules,
  bounds: NumberBounds,
  from: number,
): number {
  const writer = new NumberWriter(builder, chars, bounds.isInteger);
  const { low, high } = bounds;
  if (low === undefined && high === undefined) return writer.unbounded(from);
  const end = builder.state();
  const top = { whole: MAX_WHOLE, fraction: "", isOpen: false };
  const isBelow = (bound: NumberBound | undefined, isNegative: boolean) =>
    bound !== undefined && (isNegative ? bound.value < 0 : bound.value >= 0);
  if (!isBelow(high, true)) {
    const least = low === undefined || isBelow(low, true) ? ZERO : decimalOf(low);
    writer.range(from, least, high === undefined ? top : decimalOf(high), end);
  }
  if (!isBelow(low, false)) {
    const least = high !== undefined && high.value < 0 ? decimalOf(high) : { ...ZERO, isOpen: true };
    writer.range(builder.text(from, "-"), least, low === undefined ? top : decimalOf(low), end);
  }
  return end;
}

/** The size of a bound in plain digits. */
function decimalOf({ value, isOpen }: NumberBound): Decimal {
  const [mantissa, exponentText] = Math.abs(value).toExponential().split("e");
  const exponent = Number(exponentText);
  const digits = mantissa.replace(".", "");
  if (exponent >= MAX_WHOLE_DIGITS) {
    // Beyond the largest number that is written: the same as no bound on that side.
    if (exponent > 308) throw new GrammarError("", "expected a finite number");
    return { whole: MAX_WHOLE + 1n, fraction: "", isOpen };
  }
  const padded = exponent < 0 ? "0".repeat(-exponent) + digits : digits.padEnd(exponent + 1, "0");
  const wholeDigits = Math.max(exponent, 0) + 1;
  const fraction = padded.slice(wholeDigits).replace(/0+$/, "");
  if (fraction.length > MAX_FRACTION_DIGITS)
    throw new GrammarError("", `it has more than ${MAX_FRACTION_DIGITS} digits behind the point`);
  return { whole: BigInt(padded.slice(0, wholeDigits)), fraction, isOpen };
}

class NumberWriter {
  readonly #builder: GrammarBuilder;
  readonly #digit: number;
  readonly #isInteger: boolean;

  constructor(builder: GrammarBuilder, chars: CharRules, isInteger: boolean) {
    this.#builder = builder;
    this.#digit = chars.digit;
    this.#isInteger = isInteger;
  }

  unbounded(from: number): number {
    const builder = this.#builder;
    const end = builder.state();
    const whole = builder.state();
    const minus = builder.text(from, "-");
    for (const at of [from, minus]) {
      builder.call(builder.range(at, 49, 57), this.#digit, 0, MAX_WHOLE_DIGITS - 1, whole);
    }
    // "-0" is whole to some readers and not to others: only with a fraction.
    builder.text(from, "0", whole);
    builder.jump(whole, end);
    if (this.#isInteger) return end;
    const point = builder.text(whole, ".");
    builder.text(minus, "0.", point);
    const fraction = builder.call(point, this.#digit, 1, MAX_FRACTION_DIGITS);
    builder.jump(fraction, end);
    // Two digits: no double overflows.
    const exponent = builder.anyOf(whole, "eE");
    builder.anyOf(fraction, "eE", exponent);
    const sign = builder.anyOf(exponent, "+-");
    builder.jump(exponent, sign);
    builder.call(sign, this.#digit, 1, 2, end);
    return end;
  }

  /** Numbers without sign from `low` to `high`. */
  range(from: number, low: Decimal, high: Decimal, to: number): void {
    if (this.#isInteger) {
      const least = low.fraction !== "" || low.isOpen ? low.whole + 1n : low.whole;
      const most = high.isOpen && high.fraction === "" ? high.whole - 1n : high.whole;
      this.#whole(from, least, most, to);
      return;
    }
    const after = (lowTight: boolean, highTight: boolean) => {
      const state = this.#builder.state();
      this.#fraction(state, lowTight ? low : undefined, highTight ? high : undefined, to);
      return state;
    };
    if (low.whole > high.whole) return;
    if (low.whole === high.whole) {
      this.#whole(from, low.whole, low.whole, after(true, true));
      return;
    }
    this.#whole(from, low.whole, low.whole, after(true, false));
    this.#whole(from, low.whole + 1n, high.whole - 1n, after(false, false));
    this.#whole(from, high.whole, high.whole, after(false, true));
  }

  /** Whole numbers from `low` to `high`, those of one length after the other. */
  #whole(from: number, low: bigint, high: bigint, to: number): void {
    const most = high > MAX_WHOLE ? MAX_WHOLE : high;
    for (let length = low.toString().length; length <= most.toString().length; length++) {
      const first = length === 1 ? 0n : 10n ** BigInt(length - 1);
      const last = 10n ** BigInt(length) - 1n;
      const least = low > first ? low : first;
      const largest = most < last ? most : last;
      if (least <= largest) this.#sameLength(from, `${least}`, `${largest}`, [true, true], to);
    }
  }

  /** Digits between two texts of one length; `tight` says whether the digits so far equal those of each. */
  #sameLength(from: number, low: string, high: string, tight: [boolean, boolean], to: number): void {
    const builder = this.#builder;
    if (low === "") {
      builder.jump(from, to);
      return;
    }
    const [isLow, isHigh] = tight;
    if (!isLow && !isHigh) {
      builder.call(from, this.#digit, low.length, low.length, to);
      return;
    }
    const least = isLow ? Number(low[0]) : 0;
    const most = isHigh ? Number(high[0]) : 9;
    for (let digit = least; digit <= most; digit++) {
      const next = builder.range(from, 48 + digit, 48 + digit);
      const still: [boolean, boolean] = [isLow && digit === least, isHigh && digit === most];
      this.#sameLength(next, low.slice(1), high.slice(1), still, to);
    }
  }

  /** The point and digits behind a whole part that equals those of the bounds given. */
  #fraction(from: number, low: Decimal | undefined, high: Decimal | undefined, to: number): void {
    const builder = this.#builder;
    const isZeroAllowed =
      !(low && (low.fraction !== "" || low.isOpen)) && !(high?.isOpen && high.fraction === "");
    if (isZeroAllowed) builder.jump(from, to);
    const known = new Map<string, number>();
    const stateOf = (at: number, isLow: boolean, isHigh: boolean): number => {
      const key = `${at},${isLow},${isHigh}`;
      const found = known.get(key);
      if (found !== undefined) return found;
      const state = builder.state();
      known.set(key, state);
      if (!isLow && !isHigh) {
        builder.call(state, this.#digit, at === 0 ? 1 : 0, MAX_FRACTION_DIGITS - at, to);
        return state;
      }
      const isAboveLow = !isLow || (at >= low!.fraction.length && !low!.isOpen);
      const isBelowHigh = !isHigh || at < high!.fraction.length || !high!.isOpen;
      if (at > 0 && isAboveLow && isBelowHigh) builder.jump(state, to);
      if (at === MAX_FRACTION_DIGITS) return state;
      const least = isLow ? Number(low!.fraction[at] ?? 0) : 0;
      const most = isHigh ? Number(high!.fraction[at] ?? 0) : 9;
      for (let digit = least; digit <= most; digit++) {
        const next = stateOf(at + 1, isLow && digit === least, isHigh && digit === most);
        builder.range(state, 48 + digit, 48 + digit, next);
      }
      return state;
    };
    builder.jump(builder.text(from, "."), stateOf(0, low !== undefined, high !== undefined));
  }
}
