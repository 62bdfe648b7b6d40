// Small models that are decoded by chains: of the shape of nano, with weights of every type that a chain reads. The nano model's own
// weights are of other types and never take that path.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { firstLayers, shapeSpec } from "../../src/convert/model-shape.ts";
import type { Recipe } from "../../src/convert/recipe.ts";
import { synthesize } from "../../src/convert/synthesize.ts";
import type { GgufFile } from "../../src/gguf/gguf-file.ts";
import { openGguf } from "../../src/gguf/open-gguf.ts";
import type { CheckRow } from "./kernel-check.ts";

/** Together they have weights of all types that are packed. */
export const DECODE_RECIPES = ["q8", "q4", "q2"] as const satisfies readonly Recipe[];
/** Layers of every kind: sliding, ratio 4 with an indexer, ratio 128 with a router of its own. */
const LAYERS = 4;

/** What `use` makes of a model with random weights; the file is gone afterwards. */
export async function withDecodeModel<Result>(
  recipe: Recipe,
  use: (file: GgufFile) => Result,
): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), "ds4-decode-"));
  try {
    const path = join(folder, `${recipe}.gguf`);
    await synthesize(path, { spec: firstLayers(shapeSpec("nano"), LAYERS), recipe, seed: 1 });
    const file = openGguf(path);
    const result = use(file);
    file.close();
    return result;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Of the logits or states of several contexts or tokens: most agree to a rounding error, `medianBound`. */
export function errorRows(
  name: string,
  errors: readonly number[],
  each: string,
  medianBound: number,
): CheckRow[] {
  const ascending = errors.toSorted((x, y) => x - y);
  return [
    { name: `${name}: median over ${each}s`, error: ascending[ascending.length >> 1], bound: medianBound },
    // A value that lies at a tie of int8 rounding falls otherwise for a last bit: a hundredth of logits of 4.
    { name: `${name}: worst ${each}`, error: Math.max(...errors), bound: 0.2 },
  ];
}
