// docs/cases.md is true: every case of its sections has a row, and the tests it names exist.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "..", "..");
const FIRST = 51;
const LAST = 121;
const rows = readFileSync(join(ROOT, "docs", "cases.md"), "utf8")
  .split("\n")
  .flatMap((line) => {
    const match = /^\| (\d+) \| ([^|]+) \| ([^|]+) \|$/.exec(line);
    return match === null ? [] : [{ number: Number(match[1]), what: match[2], by: match[3] }];
  });

/** Numbers that a test's name gives as its cases: `case 51`, `cases 54, 56`, `cases 81 to 83`. */
function casesOf(name: string): number[] {
  const lists = [...name.matchAll(/\bcases? ((?:\d+(?:(?:, | and | to |-)(?=\d))?)+)/g)];
  return lists.flatMap(([, list]) =>
    [...list.matchAll(/(\d+)(?:(?: to |-)(\d+))?/g)].flatMap(([, from, to = from]) =>
      Array.from({ length: Number(to) - Number(from) + 1 }, (_, at) => Number(from) + at),
    ),
  );
}

it("has one row for each case, in order", () => {
  const expected = Array.from({ length: LAST - FIRST + 1 }, (_, at) => FIRST + at);
  expect(rows.map(({ number }) => number)).toEqual(expected);
});

it.each(rows)(
  "case $number names tests that exist and have its number, or says why there is none",
  ({ number, by }) => {
    if (by.startsWith("Not here: ")) return expect(by.length).toBeGreaterThan(40);
    for (const part of by.split("<br>")) {
      const match = /^`([\w./-]+\.test\.ts)`: (.+)$/.exec(part);
      expect(match, part).not.toBeNull();
      const [, path, name] = match!;
      expect(existsSync(join(ROOT, path)), path).toBe(true);
      expect(casesOf(name), name).toContain(number);
      const text = readFileSync(join(ROOT, path), "utf8").replaceAll('\\"', '"');
      expect(text.includes(`"${name}"`) || text.includes(`\`${name}\``), `${path} has no test ${name}`).toBe(
        true,
      );
    }
  },
);

it("reads numbers from names", () => {
  expect(casesOf("a (cases 54, 56)")).toEqual([54, 56]);
  expect(casesOf("a (cases 81 to 83), b (case 9)")).toEqual([81, 82, 83, 9]);
  expect(casesOf("case 51: 7 calls")).toEqual([51]);
  expect(casesOf("no number, in 51 ms")).toEqual([]);
});
