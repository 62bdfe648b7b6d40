// JSON to plain data that still knows how its numbers were written: `1.0` is 1 to JavaScript, but the model was trained on
// schemas and arguments that say `1.0`. The spelling lies beside the data, so that whoever checks the data sees plain
// numbers.

/** By the object or array that holds the number, then by key. */
const spellings = new WeakMap<object, Map<string, string>>();

/** Texts in which no number could be spelled otherwise than JavaScript would: almost all. */
const MAY_RESPELL = /\d\.0+(?!\d)|\d[eE][+-]?\d|\d{16}|-0/;
const PLAIN_INTEGER = /^(?:0|-?[1-9]\d{0,14})$/;

type Reviver = (this: object, key: string, value: unknown, context: { source?: string }) => unknown;

/** As `JSON.parse`; `spellingOf` then knows the whole numbers that were written in another way. */
export function parseSpelledJson(text: string): unknown {
  if (!MAY_RESPELL.test(text)) return JSON.parse(text);
  const reviver: Reviver = function (key, value, { source }) {
    // Fractions come out the same from their value.
    if (source === undefined || !Number.isInteger(value) || PLAIN_INTEGER.test(source)) return value;
    const known = spellings.get(this) ?? new Map<string, string>();
    spellings.set(this, known.set(key, source));
    return value;
  };
  return JSON.parse(text, reviver as Parameters<typeof JSON.parse>[1]);
}

/** How the number at `key` of `holder` was written; undefined where its value says it all. */
export function spellingOf(holder: object, key: string | number): string | undefined {
  return spellings.get(holder)?.get(String(key));
}
