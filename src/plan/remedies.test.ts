import { expect, test } from "vitest";
import { publishedModel } from "../convert/published-models.ts";
import { MemoryError } from "../core/errors.ts";
import { GIB } from "../core/units.ts";
import { findKnownMachine } from "../machine/known-machines.ts";
import { type Machine, withBudget } from "../machine/machine.ts";
import { checkFits, refusal, tightWarning } from "./fit.ts";
import { type PlanOptions, planMemory, regionBytes } from "./memory-plan.ts";
import { type Alternative, findRemedies, type PlanRequest } from "./remedies.ts";

const gb10 = findKnownMachine("gb10")!;
const budget = (bytes: number) => withBudget(gb10, "cuda:0", bytes);
const options: PlanOptions = {
  backend: "cuda",
  ctxTokens: 100_000,
  slots: 1,
  batchTokens: 2048,
  headRows: 1,
  threads: 1,
};
const mixed: PlanRequest = { name: "ds4f-q2-q4", model: publishedModel("ds4f-q2-q4"), options };
const small: Alternative[] = [{ alias: "ds4f-q2", model: publishedModel("ds4f-q2") }];
const check = (request: PlanRequest, machine: Machine) =>
  checkFits(planMemory(request.name, request.model, request.options, machine), machine);

test("the reported case: 90.89 GiB of weights fit in 119.7 GiB, and in 121.6", () => {
  for (const ctxTokens of [4096, 16_384, 100_000]) {
    const request = { ...mixed, options: { ...options, ctxTokens } };
    expect(check(request, budget(119.7 * GIB)).verdict).toBe("fits");
    expect(check(request, budget(121.6 * GIB)).verdict).toBe("fits");
  }
});

test("need, margin and reserve decide: fits, tight, refused", () => {
  const need = regionBytes(planMemory("x", mixed.model, options, gb10));
  const reserve = check(mixed, gb10).pools[0].reserveBytes;
  expect(check(mixed, budget(need + reserve)).verdict).toBe("fits");
  expect(check(mixed, budget(need + reserve - 1)).verdict).toBe("tight");
  expect(check(mixed, budget(need)).verdict).toBe("tight");
  expect(check(mixed, budget(need - 1)).verdict).toBe("refused");
  const tight = check(mixed, budget(need + GIB));
  expect(tightWarning(planMemory("m.gguf", mixed.model, options, gb10), tight)).toMatch(
    /^m\.gguf fits with only 1\.00 GiB of cuda:0 memory to spare; 3\.80 GiB should stay free/,
  );
});

test("a refusal names need, have, the largest classes and the limit", () => {
  const machine = budget(80 * GIB);
  const plan = planMemory("big.gguf", mixed.model, options, machine);
  const fit = checkFits(plan, machine);
  const error = refusal(plan, fit, findRemedies(mixed, machine));
  expect(error).toBeInstanceOf(MemoryError);
  expect(error.neededBytes).toBe(regionBytes(plan));
  expect(error.availableBytes).toBe(80 * GIB);
  expect(error.message).toMatch(/^big\.gguf does not fit with context 100000: it needs 9\d\.\d\d GiB/);
  expect(error.message).toContain("80.00 GiB can be had (limited by --budget)");
  expect(error.message).toContain("largest: routed experts IQ2_XXS 38.16 GiB, routed experts Q2_K 24.28 GiB");
  expect(error.message).not.toContain("streaming");
});

/** The machine and request that a remedy leads to. */
function tried(request: PlanRequest, machine: Machine, alternatives: readonly Alternative[]) {
  return findRemedies(request, machine, alternatives).map((remedy) => {
    const other = alternatives.find(({ alias }) => alias === remedy.alias);
    const changed = { ...request, model: other?.model ?? request.model, options: remedy.options };
    const freed = {
      ...machine,
      pools: machine.pools.map((pool) => ({
        ...pool,
        availableBytes: pool.availableBytes + (remedy.freeBytes?.[pool.id] ?? 0),
      })),
    };
    return { remedy, request: changed, machine: freed };
  });
}

test("every remedy passes when it is tried", () => {
  const kinds = new Set<string>();
  for (const gib of [5, 60, 80, 83, 86, 88, 92, 93, 94, 96, 100, 110]) {
    for (const [ctxTokens, slots] of [
      [4096, 1],
      [100_000, 1],
      [100_000, 4],
      [1_048_576, 1],
      [1_048_576, 3],
    ]) {
      const request = { ...mixed, options: { ...options, ctxTokens, slots, headRows: slots } };
      const machine = budget(gib * GIB);
      if (check(request, machine).verdict !== "refused") continue;
      for (const { remedy, request: changed, machine: freed } of tried(request, machine, small)) {
        kinds.add(remedy.kind);
        const { verdict } = check(changed, freed);
        expect(verdict, `${gib} GiB, ${ctxTokens}, ${remedy.text}`).toBe(remedy.tight ? "tight" : "fits");
      }
    }
  }
  expect([...kinds].sort()).toEqual(["ctx", "file", "memory", "slots"]);
});

test("the context offered is the largest in its steps, and keeps the reserve", () => {
  const request = { ...mixed, options: { ...options, ctxTokens: 1_048_576 } };
  const machine = budget(98 * GIB);
  const remedy = findRemedies(request, machine).find(({ kind }) => kind === "ctx")!;
  const at = (ctxTokens: number) => check({ ...mixed, options: { ...options, ctxTokens } }, machine).verdict;
  expect(remedy.options.ctxTokens % 128).toBe(0);
  expect(at(remedy.options.ctxTokens)).toBe("fits");
  expect(at(remedy.options.ctxTokens + 128)).toBe("tight");
  expect(remedy.text).toBe(`--ctx ${remedy.options.ctxTokens} (the largest context that fits)`);
});

test("where nothing leaves the reserve free, what merely fits is offered and says so", () => {
  const least = planMemory("x", mixed.model, { ...options, ctxTokens: 8192 }, gb10);
  const machine = budget(regionBytes(least));
  const remedies = findRemedies(mixed, machine);
  expect(remedies[0]).toMatchObject({ kind: "ctx", tight: true, options: { ctxTokens: 8192 } });
  expect(remedies[0].text).toContain("tight");
});

test("a machine that is too small whatever is closed gets no such advice", () => {
  const remedies = findRemedies(mixed, findKnownMachine("rtx-4090")!, small);
  expect(remedies).toEqual([]);
});
