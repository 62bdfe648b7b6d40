// A batch's routing table seen from the experts: which of its slots name each of them, and what those are given.
import type { ModelSpec } from "../model/model-spec.ts";
import type { ForwardOptions } from "./backend.ts";

/**
 * Expert to the places in `experts` [tokens, used] that name it, experts ascending, unused ones left out. Entries
 * outside 0..expertCount-1 mean "no route" and are skipped.
 */
export function slotsByExpert(experts: Int32Array, expertCount: number): [expert: number, slots: number[]][] {
  const slots = Array.from({ length: expertCount }, () => [] as number[]);
  experts.forEach((expert, slot) => {
    if (expert >= 0 && expert < expertCount) slots[expert].push(slot);
  });
  return [...slots.entries()].filter(([, list]) => list.length > 0);
}

/** The rows of `x` [tokens, columns] that slots of a routing table [tokens, used] belong to: [slots, columns]. */
export function gatherSlots(
  x: Float32Array,
  columns: number,
  slots: readonly number[],
  used: number,
): Float32Array {
  const rows = new Float32Array(slots.length * columns);
  slots.forEach((slot, row) => {
    const token = Math.floor(slot / used);
    rows.set(x.subarray(token * columns, (token + 1) * columns), row * columns);
  });
  return rows;
}

/** The tensors of one layer's experts. */
export type ExpertMatrices = Record<
  "gateExps" | "upExps" | "downExps" | "gateShared" | "upShared" | "downShared",
  { readonly name: string }
>;

/** What the matrices of one layer's experts are multiplied by. */
export interface ExpertInputs {
  x: Float32Array; // [tokens, hidden]
  experts: Int32Array; // [tokens, used]
  sharedH: Float32Array; // [tokens, shared inner]
  h: Float32Array; // [tokens * used, inner], grouped by expert
}

/** Shows each expert's inputs: the shared one's rows, and the chosen ones' in the order of `h`. */
export function observeExperts(
  spec: ModelSpec,
  layer: ExpertMatrices,
  { x, experts, sharedH, h }: ExpertInputs,
  observe: NonNullable<ForwardOptions["observeInputs"]>,
): void {
  const { hiddenSize: hidden, expertUsedCount: used, expertHiddenSize: inner, expertCount } = spec;
  const tokens = experts.length / used;
  observe(layer.gateShared.name, -1, x, tokens);
  observe(layer.upShared.name, -1, x, tokens);
  observe(layer.downShared.name, -1, sharedH, tokens);
  let row = 0;
  for (const [expert, slots] of slotsByExpert(experts, expertCount)) {
    const inputs = gatherSlots(x, hidden, slots, used);
    observe(layer.gateExps.name, expert, inputs, slots.length);
    observe(layer.upExps.name, expert, inputs, slots.length);
    const activated = h.subarray(row * inner, (row + slots.length) * inner);
    observe(layer.downExps.name, expert, activated, slots.length);
    row += slots.length;
  }
}
