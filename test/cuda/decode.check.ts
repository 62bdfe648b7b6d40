// The kernels that decode one token, through whole models, against the CPU backend.
import { type Backend, TOP_LOGITS } from "../../src/backend/backend.ts";
import { createCpuBackend } from "../../src/backend/cpu/cpu-backend.ts";
import type { Recipe } from "../../src/convert/recipe.ts";
import { largestValues } from "../../src/core/largest-values.ts";
import { openChecked, requiredAddon } from "./checked-backend.ts";
import { DECODE_RECIPES, errorRows, withDecodeModel } from "./decode-model.ts";
import {
  type CheckBench,
  type CheckRow,
  countDifferent,
  type KernelCheck,
  largestDifference,
} from "./kernel-check.ts";

/** Contexts, each with tokens of its own: what falls otherwise in one of them stays in it. */
const CONTEXTS = 5;
const TOKENS = 2;

/** The largest difference of logits in each context, one token at a time; NaN where candidates are not the row's. */
function contextErrors(found: Backend, expected: Backend): number[] {
  return Array.from({ length: CONTEXTS }, (_, context) => {
    const [kv, oracle] = [found.createKv(TOKENS), expected.createKv(TOKENS)];
    let worst = 0;
    for (let i = 0; i < TOKENS; i++) {
      const tokens = Int32Array.of((37 * (TOKENS * context + i) + 11) % found.spec.vocabSize);
      const [top] = found.forward([{ kv, tokens, logits: "top" }]).top;
      const logits = top!.row();
      const chosen = largestValues(logits, TOP_LOGITS).places;
      if (countDifferent(top!.ids, chosen) > 0) return Number.NaN;
      const [wanted] = expected.forward([{ kv: oracle, tokens, logits: "last" }]).logits;
      worst = Math.max(worst, largestDifference(logits, wanted)); // a number that is none stays
    }
    for (const state of [kv, oracle]) state.close();
    return worst;
  });
}

async function checkRecipe(bench: CheckBench, recipe: Recipe): Promise<CheckRow[]> {
  const errors = await withDecodeModel(recipe, (file) => {
    const found = openChecked(bench, file, { kvType: "f16x2" });
    const expected = createCpuBackend(file, requiredAddon(), {});
    const each = contextErrors(found, expected);
    found.close();
    expected.close();
    return each;
  });
  return errorRows(recipe, errors, "context", 1e-4);
}

/** One group per recipe. */
export const checks: KernelCheck[] = DECODE_RECIPES.map((recipe) => ({
  name: `decode ${recipe}`,
  run: (bench) => checkRecipe(bench, recipe),
}));
