// The published ds4 files by alias: their tensor tables, without their download. The tables follow from the model's
// shape and the recipe; a test holds them against the published ones.
import { tensorBytes } from "../blocks/ggml-types.ts";
import { alignUp } from "../core/units.ts";
import type { TensorInfo } from "../gguf/gguf-file.ts";
import { type BoundModel, bindTensors } from "../model/weights.ts";
import { modelTensors, shapeSpec } from "./model-shape.ts";
import { type Recipe, recipeType } from "./recipe.ts";

/** Aliases as ds4 has them, largest file first. */
export const PUBLISHED_ALIASES = ["ds4f-q4", "ds4f-q2-q4", "ds4f-q2"] as const;

/** A published file. */
export type PublishedAlias = (typeof PUBLISHED_ALIASES)[number];

const RECIPE_OF: Readonly<Record<PublishedAlias, Recipe>> = {
  "ds4f-q4": "q4",
  "ds4f-q2-q4": "q2-q4",
  "ds4f-q2": "q2",
};

/** Data starts on multiples of this, as in the files. */
const ALIGNMENT_BYTES = 32;

/** Whether `text` names a published file. */
export function isPublishedAlias(text: string): text is PublishedAlias {
  return (PUBLISHED_ALIASES as readonly string[]).includes(text);
}

/** The model of a published file. Offsets count from the start of its data; there are no bytes behind them. */
export function publishedModel(alias: PublishedAlias): BoundModel {
  const spec = shapeSpec("flash");
  let offsetBytes = 0;
  const tensors = modelTensors(spec).map(({ name, dims }): TensorInfo => {
    const type = recipeType(RECIPE_OF[alias], name, spec.layerCount);
    const tensor = { name, type, dims, fileIndex: 0, offsetBytes, bytes: tensorBytes(type, dims) };
    offsetBytes = alignUp(offsetBytes + tensor.bytes, ALIGNMENT_BYTES);
    return tensor;
  });
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  return bindTensors({ name: alias, tensors, tensor: (name) => byName.get(name) }, spec);
}
