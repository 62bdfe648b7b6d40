import { expect, test } from "vitest";
import { nanoModelPath } from "../../test/fixtures/nano-model.ts";
import { tinyModel } from "../../test/fixtures/tiny-model.ts";
import { PUBLISHED_ALIASES, type PublishedAlias, publishedModel } from "../convert/published-models.ts";
import { MIB } from "../core/units.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import { findKnownMachine } from "../machine/known-machines.ts";
import { type BoundModel, bindModel } from "../model/weights.ts";
import { type MemoryPlan, type PlanOptions, planMemory, regionBytes } from "./memory-plan.ts";
import { planWeights } from "./weight-layout.ts";

const gb10 = findKnownMachine("gb10")!;
const cuda: PlanOptions = {
  backend: "cuda",
  ctxTokens: 4096,
  slots: 1,
  batchTokens: 2048,
  headRows: 1,
  threads: 1,
};
const cpu: PlanOptions = { ...cuda, backend: "cpu", batchTokens: 512, threads: 4 };
const plan = (model: BoundModel, options: Partial<PlanOptions> = {}) =>
  planMemory("test", model, { ...cuda, ...options }, gb10);

/** Bytes of all tensors in the published files. */
const PUBLISHED_BYTES: Readonly<Record<PublishedAlias, number>> = {
  "ds4f-q2": 86_714_775_900,
  "ds4f-q2-q4": 97_586_411_868,
  "ds4f-q4": 164_628_167_004,
};

const nano = openGguf(nanoModelPath());
const tiny = tinyModel();
const draft = { ...tiny.tensors[0], name: "mtp.0.norm.weight" };
const drafted = { ...tiny, tensors: [...tiny.tensors, draft] };
const FILES: [string, BoundModel, string[]][] = [
  ["nano", bindModel(nano), nano.tensors.map(({ name }) => name)],
  ["tiny", bindModel(tiny), tiny.tensors.map(({ name }) => name)],
  ["tiny with a draft block", bindModel(drafted), drafted.tensors.map(({ name }) => name)],
  ...PUBLISHED_ALIASES.map((alias): [string, BoundModel, string[]] => {
    const model = publishedModel(alias);
    const { matrices, vectors, indexes } = planWeights(model);
    return [
      alias,
      model,
      [...matrices.map(({ tensor }) => tensor), ...vectors, ...indexes].map((t) => t.name),
    ];
  }),
];
nano.close();

test.each(FILES)("%s: every tensor lies in exactly one region", (_name, model, names) => {
  for (const backend of ["cpu", "cuda", "reference"] as const) {
    const { regions, notLoaded } = plan(model, { backend });
    const placed = [...regions.flatMap((region) => region.tensors ?? []), ...notLoaded];
    expect(placed.toSorted()).toEqual(names.toSorted());
    expect(new Set(regions.map(({ id }) => id)).size).toBe(regions.length);
  }
});

test.each(FILES)("%s: weight regions add up to the arena and the vectors", (_name, model) => {
  const { arenaBytes, vectorBytes } = planWeights(model);
  const bytes = regionBytes(plan(model, { backend: "cpu" }), ({ owner }) => owner === "weights");
  expect(bytes).toBe(arenaBytes + vectorBytes);
});

test("a tensor that no role uses is named and not counted", () => {
  const { notLoaded } = plan(bindModel(drafted));
  expect(notLoaded).toEqual(["mtp.0.norm.weight"]);
  expect(regionBytes(plan(bindModel(drafted)))).toBe(regionBytes(plan(bindModel(tiny))));
});

test.each(PUBLISHED_ALIASES)("%s: weights equal the published bytes, nothing twice", (alias) => {
  const { regions } = plan(publishedModel(alias));
  const fileBytes = regions.reduce((sum, region) => sum + (region.fileBytes ?? 0), 0);
  expect(fileBytes).toBe(PUBLISHED_BYTES[alias]);
  // In memory: hyper-connection rows padded to whole panels, position tables widened to float32, alignment.
  const held = regions.filter(({ owner }) => owner === "weights").reduce((sum, { bytes }) => sum + bytes, 0);
  expect(held - fileBytes).toBeGreaterThan(0);
  expect(held - fileBytes).toBeLessThan(32 * MIB);
});

test("routed experts are told apart by type", () => {
  const bytes = (model: BoundModel) =>
    Object.fromEntries(
      plan(model)
        .regions.filter(({ id }) => id.startsWith("weights/routed-experts/"))
        .map(({ id, bytes }) => [id.split("/")[2], bytes]),
    );
  expect(bytes(publishedModel("ds4f-q2-q4"))).toEqual({
    IQ2_XXS: 37 * 2 * 256 * 2_162_688,
    Q2_K: 37 * 256 * 2_752_512,
    Q4_K: 6 * 3 * 256 * 4_718_592,
  });
  expect(Object.keys(bytes(publishedModel("ds4f-q4")))).toEqual(["Q4_K"]);
});

// Case 2: a plan that grows does so on purpose, by a change of these numbers.
// Contexts of 4096, 131072, 500000 and 1048576 tokens.
const GOLDEN: [PublishedAlias, "cpu" | "cuda" | "cuda, f16x2", number[]][] = [
  ["ds4f-q2", "cuda", [89_513_756_160, 90_387_858_944, 92_927_857_568, 96_704_808_448]],
  ["ds4f-q2", "cpu", [87_547_297_264, 89_297_206_768, 94_381_946_640, 101_942_705_648]],
  ["ds4f-q2-q4", "cuda", [100_385_392_128, 101_259_494_912, 103_799_493_536, 107_576_444_416]],
  ["ds4f-q2-q4", "cpu", [98_418_933_232, 100_168_842_736, 105_253_582_608, 112_814_341_616]],
  ["ds4f-q4", "cuda", [167_427_147_264, 168_301_250_048, 170_841_248_672, 174_618_199_552]],
  ["ds4f-q4", "cuda, f16x2", [167_551_141_376, 169_298_839_040, 174_377_057_184, 181_928_216_064]],
  ["ds4f-q4", "cpu", [165_460_688_368, 167_210_597_872, 172_295_337_744, 179_856_096_752]],
];

test.each(GOLDEN)("golden totals of %s on %s", (alias, backend, totals) => {
  const model = publishedModel(alias);
  const onCuda: PlanOptions = { ...cuda, kvType: backend === "cuda, f16x2" ? "f16x2" : "f16" };
  const base = backend === "cpu" ? cpu : onCuda;
  const found = [4096, 131_072, 500_000, 1_048_576].map((ctxTokens) =>
    regionBytes(plan(model, { ...base, ctxTokens })),
  );
  expect(found).toEqual(totals);
});

test("scratch is bounded by the chunk, not by the context", () => {
  const model = publishedModel("ds4f-q2");
  for (const base of [cpu, cuda]) {
    const scratch = (ctxTokens: number) =>
      regionBytes(plan(model, { ...base, ctxTokens }), ({ owner }) => owner === "scratch");
    expect(scratch(1_048_576) / scratch(65_536)).toBeLessThan(2);
  }
});

test("KV grows with slots and context, weights with neither", () => {
  const model = publishedModel("ds4f-q2");
  const of = (plan: MemoryPlan, owner: string) => regionBytes(plan, (region) => region.owner === owner);
  const [one, two, long] = [
    plan(model, { ctxTokens: 65_536 }),
    plan(model, { ctxTokens: 65_536, slots: 2 }),
    plan(model, { ctxTokens: 131_072 }),
  ];
  expect(of(two, "kv")).toBe(2 * of(one, "kv"));
  expect(of(long, "kv")).toBeGreaterThan(1.5 * of(one, "kv"));
  for (const other of [two, long]) expect(of(other, "weights")).toBe(of(one, "weights"));
});

test("a full million tokens of KV in F16 take what the model's design says", () => {
  // Per token: 21 layers of (512 + 128) / 4 values and 20 layers of 512 / 128, two bytes each.
  const { regions } = plan(publishedModel("ds4f-q2"), { ctxTokens: 1_048_576 });
  const bytes = (id: string) => regions.find((region) => region.id === id)!.bytes;
  expect(bytes("kv/compressed-4")).toBe(21 * 262_144 * 512 * 2);
  expect(bytes("kv/indexer")).toBe(21 * 262_144 * 128 * 2);
  expect(bytes("kv/compressed-128")).toBe(20 * 8192 * 512 * 2);
});

test("a discrete card holds weights, KV and scratch; the process stays in host memory", () => {
  const { regions } = planMemory("test", publishedModel("ds4f-q2"), cuda, findKnownMachine("h200")!);
  const owners = (pool: string) =>
    [...new Set(regions.filter((region) => region.pool === pool).map(({ owner }) => owner))].sort();
  expect(owners("cuda:0")).toEqual(["kv", "reserve", "runtime", "scratch", "weights"]);
  expect(owners("host")).toEqual(["kv", "reserve", "runtime", "scratch", "staging"]);
});

test("a server is counted with the requests that it holds, in the host's memory", () => {
  const model = bindModel(tiny);
  const bytes = (requests?: number) => regionBytes(plan(model, { requests }));
  expect(bytes(64) - bytes()).toBe(40 * MIB);
  expect(bytes(128) - bytes(64)).toBe(4 * MIB);
  const { regions } = planMemory("test", model, { ...cuda, requests: 1 }, findKnownMachine("h200")!);
  expect(regions.find(({ id }) => id === "runtime/server")?.pool).toBe("host");
});
