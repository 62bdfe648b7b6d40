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
const GOLDEN: [PublishedAlias, "cpu" | "cuda", number[]][] = [
  ["ds4f-q2", "cuda", [89_324_101_104, 90_198_203_888, 92_738_202_512, 96_515_153_392]],
  ["ds4f-q2", "cpu", [87_547_035_120, 89_296_944_624, 94_381_684_496, 101_942_443_504]],
  ["ds4f-q2-q4", "cuda", [100_195_737_072, 101_069_839_856, 103_609_838_480, 107_386_789_360]],
  ["ds4f-q2-q4", "cpu", [98_418_671_088, 100_168_580_592, 105_253_320_464, 112_814_079_472]],
  ["ds4f-q4", "cuda", [167_237_492_208, 168_111_594_992, 170_651_593_616, 174_428_544_496]],
  ["ds4f-q4", "cpu", [165_460_426_224, 167_210_335_728, 172_295_075_600, 179_855_834_608]],
];

test.each(GOLDEN)("golden totals of %s on %s", (alias, backend, totals) => {
  const model = publishedModel(alias);
  const base = backend === "cpu" ? cpu : cuda;
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
  expect(owners("host")).toEqual(["kv", "reserve", "runtime", "staging"]);
});
