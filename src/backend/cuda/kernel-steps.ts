// The steps of a pass as launches of this backend's kernels.
import { expertsDown, expertsUp, groupByExpert } from "./expert-products.ts";
import { workBytes } from "./matrix-plans.ts";
import { embed, multiply, multiplyGroups } from "./matrix-steps.ts";
import * as sequence from "./sequence-steps.ts";
import type { CudaSteps } from "./steps.ts";
import { topLogits } from "./top-logits-steps.ts";

/** Launches on the stream of the context; nothing waits. */
export const kernelSteps: CudaSteps = {
  ...sequence,
  ...{ workBytes, multiply, multiplyGroups, embed },
  ...{ groupByExpert, expertsUp, expertsDown, topLogits },
};
