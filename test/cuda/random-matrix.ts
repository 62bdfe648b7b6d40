// The same random weights for the addon's kernels and for the device's.
import type { DeviceBuffer } from "../../src/backend/cuda/device-memory.ts";
import type { DeviceMatrix } from "../../src/backend/cuda/matrix.ts";
import type { WeightArena, WeightMatrix } from "../../src/backend/native-kernels.ts";
import { type GgmlType, ggmlType, rowBytes } from "../../src/blocks/ggml-types.ts";
import { alignUp } from "../../src/core/units.ts";
import { randomBlocks } from "../native/random-blocks.ts";
import type { CheckBench } from "./kernel-check.ts";

/** One tensor in both places. */
export interface MatrixPair {
  host: WeightMatrix;
  device: DeviceMatrix;
  arena: WeightArena;
}

/** [slices, rows, cols] of valid random blocks. Close the arena after use. */
export function randomMatrix(
  bench: CheckBench,
  type: GgmlType,
  [slices, rows, cols]: readonly [number, number, number],
  seed: number,
): MatrixPair {
  const { cpu, workspace, ctx } = bench;
  const info = ggmlType(type);
  const sliceBytes = alignUp(rows, 16) * rowBytes(type, cols);
  const arena = new cpu.WeightArena(slices * sliceBytes);
  const host = new cpu.WeightMatrix(arena, 0, info.id, slices, rows, cols);
  for (let slice = 0; slice < slices; slice++) {
    const file = randomBlocks(type, (rows * cols) / info.blockValues, seed + slice);
    host.packRows(workspace, slice, 0, rows, file);
  }
  const buffer: DeviceBuffer = bench.room(slices * sliceBytes);
  ctx.stream.driver.copyToDevice(buffer.address, arena.address, slices * sliceBytes, ctx.stream.handle);
  ctx.stream.synchronize();
  return { host, arena, device: { type: info.id, slices, rows, cols, sliceBytes, buffer } };
}
