// The buffer that weights pass through on their way from the file into the arena.
import { rowBytes } from "../blocks/ggml-types.ts";
import { MIB } from "../core/units.ts";
import { PANEL_ROWS, type WeightPlan } from "./weight-layout.ts";

/** Bytes read and repacked at a time, unless a single panel is larger. */
const STAGING_BYTES = 8 * MIB;

/** Bytes of the staging buffer: at least one panel of the widest matrix. */
export function stagingBytes(plan: WeightPlan): number {
  return plan.matrices.reduce(
    (most, { tensor, cols }) => Math.max(most, PANEL_ROWS * rowBytes(tensor.type, cols)),
    STAGING_BYTES,
  );
}
