// The kernels that decode one token, after prompts so long that the indexer chooses. After hundreds of tokens of random weights the CPU's
// state and the device's differ too much to judge by. So the kernels of many tokens, launch by launch, compute each token on
// the same state.
import type { Backend, ForwardOptions, KvState } from "../../src/backend/backend.ts";
import type { KvSection } from "../../src/backend/kv-snapshot.ts";
import type { Recipe } from "../../src/convert/recipe.ts";
import { openChecked } from "./checked-backend.ts";
import { DECODE_RECIPES, errorRows, withDecodeModel } from "./decode-model.ts";
import { type CheckBench, type CheckRow, type KernelCheck, largestDifference } from "./kernel-check.ts";

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

function sectionError(found: KvSection, expected: KvSection): number {
  const largest = expected.data.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return found.data.length === 0 ? 0 : largestDifference(found.data, expected.data) / largest;
}

/** One token on equal states, which are equal again afterwards. */
function tokenError(backend: Backend, kv: KvState, oracle: KvState, token: number): TokenError {
  const tokens = Int32Array.of(token);
  const found = backend.forward([{ kv, tokens, logits: "last" }]).logits[0].slice();
  const expected = backend.forward([{ kv: oracle, tokens, logits: "last" }], WATCHED).logits[0];
  const logits = largestDifference(found, expected);
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

async function checkRecipe(bench: CheckBench, recipe: Recipe): Promise<CheckRow[]> {
  const errors = await withDecodeModel(recipe, (file) => {
    const backend = openChecked(bench, file, { kvType: "f16x2" });
    const each = PROMPTS.flatMap((promptTokens) => contextErrors(backend, promptTokens));
    backend.close();
    return each;
  });
  return (["logits", "state"] as const).flatMap((what) => {
    const found = errors.map((error) => error[what]);
    return errorRows(`${recipe}: ${what}`, found, "token", 1e-5);
  });
}

/** One group per recipe. */
export const checks: KernelCheck[] = DECODE_RECIPES.map((recipe) => ({
  name: `long decode ${recipe}`,
  run: (bench) => checkRecipe(bench, recipe),
}));
