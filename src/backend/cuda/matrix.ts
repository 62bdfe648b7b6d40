// A weight tensor on the device.
import { ggmlType } from "../../blocks/ggml-types.ts";
import type { PlacedMatrix } from "../../plan/weight-layout.ts";
import type { DeviceBuffer } from "./device-memory.ts";

/** A tensor [slices, rows, cols] in kernel layout (native/cpu/packed_layout.h): rows padded to panels of 16. */
export interface DeviceMatrix {
  /** The type's id in GGUF files. */
  readonly type: number;
  /** Experts; 1 for a plain matrix. */
  readonly slices: number;
  readonly rows: number;
  readonly cols: number;
  readonly sliceBytes: number;
  readonly buffer: DeviceBuffer;
}

/** The matrix that a plan places, in the arena at `arena`. */
export function placedMatrix(placed: PlacedMatrix, arena: DeviceBuffer): DeviceMatrix {
  const { tensor, slices, rows, cols, offsetBytes, bytes } = placed;
  return {
    ...{ type: ggmlType(tensor.type).id, slices, rows, cols },
    ...{ sliceBytes: bytes / slices, buffer: arena.slice(offsetBytes, bytes) },
  };
}
