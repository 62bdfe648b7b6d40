// Reads cover every matrix once, in file order, and what is packed from one fits where it waits for its copy to a device.
import { expect, test } from "vitest";
import { PUBLISHED_ALIASES, publishedModel } from "../convert/published-models.ts";
import { longestReadBytes, uploadSlotBytes } from "../plan/staging-size.ts";
import { type PlacedMatrix, planWeights, type WeightPlan } from "../plan/weight-layout.ts";
import { packedOffsets, planReads } from "./read-order.ts";

/** Many matrices of one row behind each other: packed they are sixteen times as large as in the file. */
function slimRows(count: number): WeightPlan {
  const { matrices, ...rest } = planWeights(publishedModel("ds4f-q2"));
  const [first] = matrices;
  const slim = Array.from({ length: count }, (_, i): PlacedMatrix => {
    const tensor = {
      ...first.tensor,
      type: "F32" as const,
      dims: [4100, 1],
      bytes: 16_400,
      offsetBytes: 16_400 * i,
    };
    return {
      ...first,
      tensor,
      rows: 1,
      cols: 4100,
      slices: 1,
      bytes: 16 * 16_400,
      offsetBytes: 16 * 16_400 * i,
    };
  });
  return { ...rest, matrices: slim };
}

const PLANS: [string, () => WeightPlan][] = [
  ...PUBLISHED_ALIASES.map((alias): [string, () => WeightPlan] => [
    alias,
    () => planWeights(publishedModel(alias)),
  ]),
  ["matrices of one row", () => slimRows(100)],
];

test.each(PLANS)("reads of %s", (_name, build) => {
  const plan = build();
  const longestBytes = longestReadBytes(plan);
  const reads = planReads(plan, longestBytes);
  const packedBytes = reads.map((read) => packedOffsets(read).at(-1)! + read.pieces.at(-1)!.packedBytes);
  expect(Math.max(...reads.map(({ bytes }) => bytes))).toBeLessThanOrEqual(longestBytes);
  expect(Math.max(...packedBytes)).toBeLessThanOrEqual(uploadSlotBytes(plan));
  const pieces = reads.flatMap((read) => read.pieces);
  const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);
  expect(sum(pieces.map(({ bytes }) => bytes))).toBe(sum(plan.matrices.map(({ tensor }) => tensor.bytes)));
  expect(sum(pieces.map((piece) => piece.packedBytes))).toBe(sum(plan.matrices.map(({ bytes }) => bytes)));
  expect([...new Set(pieces.map(({ placed }) => placed))]).toEqual(plan.matrices);
});
