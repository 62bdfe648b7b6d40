// The kernels that decode one token, through whole models, against the CPU backend.
import { type Backend, TOP_LOGITS } from "../../src/backend/backend.ts";
import { createCpuBackend } from "../../src/backend/cpu/cpu-backend.ts";
import { createCudaBackend } from "../../src/backend/cuda/cuda-backend.ts";
import { loadNative } from "../../src/backend/native.ts";
import type { Recipe } from "../../src/convert/recipe.ts";
import { Ds4Error } from "../../src/core/errors.ts";
import { largestValues } from "../../src/core/largest-values.ts";
import { DECODE_RECIPES, withDecodeModel } from "./decode-model.ts";
import { type CheckBench, type CheckRow, countDifferent, type KernelCheck } from "./kernel-check.ts";

/** Contexts, each with tokens of its own: what falls otherwise in one of them stays in it. */
const CONTEXTS = 5;
const TOKENS = 2;

/** The largest difference of logits in each context, one token at a time, ascending; NaN where candidates are not the row's. */
function contextErrors(found: Backend, expected: Backend): number[] {
  const errors = Array.from({ length: CONTEXTS }, (_, context) => {
    const [kv, oracle] = [found.createKv(TOKENS), expected.createKv(TOKENS)];
    let worst = 0;
    for (let i = 0; i < TOKENS; i++) {
      const tokens = Int32Array.of((37 * (TOKENS * context + i) + 11) % found.spec.vocabSize);
      const [top] = found.forward([{ kv, tokens, logits: "top" }]).top;
      const logits = top!.row();
      const chosen = largestValues(logits, TOP_LOGITS).places;
      if (countDifferent(top!.ids, chosen) > 0) return Number.NaN;
      const [wanted] = expected.forward([{ kv: oracle, tokens, logits: "last" }]).logits;
      wanted.forEach((value, at) => {
        const apart = Math.abs(value - logits[at]);
        if (!(apart <= worst)) worst = apart; // a number that is none stays
      });
    }
    for (const state of [kv, oracle]) state.close();
    return worst;
  });
  return errors.sort((x, y) => x - y);
}

async function checkRecipe({ deviceOptions }: CheckBench, recipe: Recipe): Promise<CheckRow[]> {
  const { addon, reason } = loadNative();
  if (addon === null) throw new Ds4Error("native", `the check needs the native addon: ${reason}`);
  const errors = await withDecodeModel(recipe, (file) => {
    const found = createCudaBackend(file, addon, { ...deviceOptions, kvType: "f16x2" });
    const expected = createCpuBackend(file, addon, {});
    const each = contextErrors(found, expected);
    found.close();
    expected.close();
    return each;
  });
  return [
    { name: `${recipe}: median over contexts`, error: errors[CONTEXTS >> 1], bound: 1e-4 },
    // A value that lies at a tie of int8 rounding falls otherwise for a last bit: a hundredth of logits of 4.
    { name: `${recipe}: worst context`, error: errors.at(-1) ?? Number.NaN, bound: 0.2 },
  ];
}

/** One group per recipe. */
export const checks: KernelCheck[] = DECODE_RECIPES.map((recipe) => ({
  name: `decode ${recipe}`,
  run: (bench) => checkRecipe(bench, recipe),
}));
