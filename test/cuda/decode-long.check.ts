// The kernels that decode one token, after prompts so long that the indexer chooses. After hundreds of tokens of random weights the CPU's
// state and the device's differ too much to judge by. So the kernels of many tokens, launch by launch, compute each token on
// the same state.
import type { Backend, ForwardOptions, KvState } from "../../src/backend/backend.ts";
import { createCudaBackend } from "../../src/backend/cuda/cuda-backend.ts";
import type { KvSection } from "../../src/backend/kv-snapshot.ts";
import { loadNative } from "../../src/backend/native.ts";
import type { Recipe } from "../../src/convert/recipe.ts";
import { Ds4Error } from "../../src/core/errors.ts";
import { DECODE_RECIPES, withDecodeModel } from "./decode-model.ts";
import type { CheckBench, CheckRow, KernelCheck } from "./kernel-check.ts";

/** Prompts before and after the windows are full (64 rows), the indexer chooses (32 entries of 4 tokens) and 128 tokens are one entry. */
const PROMPTS = [61, 125, 254, 381];
const TOKENS = 6;
/** A forward pass that is watched is neither a graph nor a chain. */
const WATCHED: ForwardOptions = { trace: () => undefined };

/** Of one token. */
interface TokenError {
  logits: number;
  /** Of any section of the state, against its largest value. */
  state: number;
}

/** The largest difference; NaN where a value is none. */
function largestApart(found: Float32Array, expected: Float32Array): number {
  return found.reduce((worst, value, i) => Math.max(worst, Math.abs(value - expected[i])), 0);
}

function sectionError(found: KvSection, expected: KvSection): number {
  const largest = expected.data.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return found.data.length === 0 ? 0 : largestApart(found.data, expected.data) / largest;
}

/** One token on equal states, which are equal again afterwards. */
function tokenError(backend: Backend, kv: KvState, oracle: KvState, token: number): TokenError {
  const tokens = Int32Array.of(token);
  const found = backend.forward([{ kv, tokens, logits: "last" }]).logits[0].slice();
  const expected = backend.forward([{ kv: oracle, tokens, logits: "last" }], WATCHED).logits[0];
  const logits = largestApart(found, expected);
  const [state, wanted] = [kv.snapshot(), oracle.snapshot()];
  const errors = state.sections.map((section, i) => sectionError(section, wanted.sections[i]));
  oracle.restore(state);
  return { logits, state: Math.max(...errors) };
}

function contextErrors(backend: Backend, promptTokens: number): TokenError[] {
  const capacityTokens = promptTokens + TOKENS;
  const tokens = Int32Array.from({ length: capacityTokens }, (_, i) => {
    return (37 * (promptTokens + i) + 11) % backend.spec.vocabSize;
  });
  const [kv, oracle] = [backend.createKv(capacityTokens), backend.createKv(capacityTokens)];
  backend.forward([{ kv, tokens: tokens.subarray(0, promptTokens), logits: "none" }]);
  oracle.restore(kv.snapshot());
  const errors = [...tokens.subarray(promptTokens)].map((token) => tokenError(backend, kv, oracle, token));
  kv.close();
  oracle.close();
  return errors;
}

/** Most tokens agree to a rounding error; a tie of int8 rounding that falls otherwise changes a hundredth. */
function errorRows(name: string, errors: readonly number[]): CheckRow[] {
  const ascending = errors.toSorted((x, y) => x - y);
  return [
    { name: `${name}, median over tokens`, error: ascending[ascending.length >> 1], bound: 1e-5 },
    { name: `${name}, worst token`, error: ascending.at(-1) ?? Number.NaN, bound: 0.2 },
  ];
}

async function checkRecipe({ deviceOptions }: CheckBench, recipe: Recipe): Promise<CheckRow[]> {
  const { addon, reason } = loadNative();
  if (addon === null) throw new Ds4Error("native", `the check needs the native addon: ${reason}`);
  const errors = await withDecodeModel(recipe, (file) => {
    const backend = createCudaBackend(file, addon, { ...deviceOptions, kvType: "f16x2" });
    const each = PROMPTS.flatMap((promptTokens) => contextErrors(backend, promptTokens));
    backend.close();
    return each;
  });
  return [
    ...errorRows(
      `${recipe}: logits`,
      errors.map(({ logits }) => logits),
    ),
    ...errorRows(
      `${recipe}: state`,
      errors.map(({ state }) => state),
    ),
  ];
}

/** One group per recipe. */
export const checks: KernelCheck[] = DECODE_RECIPES.map((recipe) => ({
  name: `long decode ${recipe}`,
  run: (bench) => checkRecipe(bench, recipe),
}));
