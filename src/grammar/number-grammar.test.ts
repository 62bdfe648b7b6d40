import { expect, it } from "vitest";
import { Automaton } from "./automaton.ts";
import { CharRules } from "./char-rules.ts";
import { GrammarBuilder } from "./grammar.ts";
import { addNumber, type NumberBounds } from "./number-grammar.ts";

function automaton(bounds: NumberBounds): (text: string) => boolean {
  const builder = new GrammarBuilder();
  const { start } = builder.rule();
  builder.final(addNumber(builder, new CharRules(builder), bounds, start));
  const grammar = builder.finish();
  if (grammar === undefined) return () => false;
  const machine = new Automaton(grammar);
  return (text) => {
    const position = machine.run(new TextEncoder().encode(text));
    return position >= 0 && machine.accepts(position);
  };
}

it("takes exactly the numbers within random bounds", () => {
  let state = 77;
  const random = (limit: number) => {
    state = Math.imul(state, 48271) & 0x7fffffff;
    return (state >> 7) % limit;
  };
  const value = () => {
    const size = [1, 10, 1000, 123456][random(4)];
    const scale = [1, 1, 10, 100][random(4)];
    return ((random(2 * size + 1) - size) * 1) / scale;
  };
  let hits = 0;
  for (let round = 0; round < 120; round++) {
    const isInteger = random(2) === 0;
    const low = random(4) === 0 ? undefined : { value: value(), isOpen: random(3) === 0 };
    const high = random(4) === 0 ? undefined : { value: value(), isOpen: random(3) === 0 };
    const accepts = automaton({ isInteger, low, high });
    const near = [low?.value, high?.value].flatMap((bound) =>
      bound === undefined ? [] : [bound, bound + 1, bound - 1, bound + 0.01, bound - 0.1, -bound],
    );
    for (const number of [0, ...near, ...Array.from({ length: 20 }, value)]) {
      const text = isInteger ? `${Math.round(number)}` : number.toFixed(4).replace(/0{0,3}$/, "");
      if (text === "-0" || Math.sign(Number(text)) === 0) continue;
      const parsed = Number(text);
      const isHigh = low === undefined || parsed > low.value || (parsed === low.value && !low.isOpen);
      const isLow = high === undefined || parsed < high.value || (parsed === high.value && !high.isOpen);
      const expected = isHigh && isLow;
      if (expected) hits++;
      expect([isInteger, low, high, text, accepts(text)]).toEqual([isInteger, low, high, text, expected]);
    }
  }
  expect(hits).toBeGreaterThan(200);
});

it("takes JSON's spelling of numbers and no other", () => {
  const number = automaton({ isInteger: false });
  for (const text of ["0", "-1", "10", "1.5", "-0.5", "1e5", "2.5E-10", "0.0", "0e1"])
    expect(number(text)).toBe(true);
  for (const text of ["-0", "01", "1.", ".5", "+1", "1e", "1e999", "", "-", "0x1"])
    expect(number(text)).toBe(false);
  const integer = automaton({ isInteger: true });
  for (const text of ["0", "7", "-12"]) expect(integer(text)).toBe(true);
  for (const text of ["1.0", "1e3", "-0", "1234567890123456789"]) expect(integer(text)).toBe(false);
  const byte = automaton({
    isInteger: true,
    low: { value: 0, isOpen: false },
    high: { value: 255, isOpen: false },
  });
  const taken = Array.from({ length: 2000 }, (_, at) => at - 1000).filter((at) => byte(`${at}`));
  expect(taken).toEqual(Array.from({ length: 256 }, (_, at) => at));
  const zero = automaton({
    isInteger: false,
    low: { value: 0, isOpen: false },
    high: { value: 0, isOpen: false },
  });
  expect([zero("0"), zero("0.0"), zero("0.1"), zero("1")]).toEqual([true, true, false, false]);
  expect(
    automaton({ isInteger: true, low: { value: 5, isOpen: true }, high: { value: 6, isOpen: true } })("5"),
  ).toBe(false);
});
