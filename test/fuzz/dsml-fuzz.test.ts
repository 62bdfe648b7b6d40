import { expect, it } from "vitest";
import { fuzzDsml } from "./dsml-fuzz.ts";

it("20,000 random answers: streamed in random cuts as whole, nothing lost, calls well-formed", () => {
  const summary = fuzzDsml({ count: 20_000, seed: 1 });
  expect(summary.failures.slice(0, 3)).toEqual([]);
  // Each kind of event is met often enough for the comparison to mean something.
  expect(Math.min(...Object.values(summary.withEvents))).toBeGreaterThan(1000);
  expect(Object.keys(summary.withEvents).length).toBe(7);
});
