// Hands a matrix's inputs to the caller's `observeInputs` hook (importance matrices), or does nothing.
import type { ForwardOptions } from "../backend.ts";
import type { Weight } from "./weight-decoding.ts";

/** Reports `inputs` [rows, columns] of a matrix; `expert` -1 for dense ones. */
export type InputObserver = (weight: Weight, expert: number, inputs: Float32Array) => void;

/** The observer for one forward call. */
export function inputObserver(options: ForwardOptions): InputObserver {
  const hook = options.observeInputs;
  if (hook === undefined) return () => {};
  return (weight, expert, inputs) => hook(weight.name, expert, inputs, inputs.length / weight.columns);
}
