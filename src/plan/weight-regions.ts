// The weights' part of a memory plan: one region per class and type, each tensor in exactly one.
import { type TensorInfo, valueCount } from "../gguf/gguf-file.ts";
import type { PlanInput, Region } from "./memory-plan.ts";
import { planWeights, type WeightClass, type WeightPlan } from "./weight-layout.ts";

const LABELS: Readonly<Record<WeightClass, string>> = {
  embedding: "token embedding",
  head: "output head",
  attention: "attention",
  compressors: "compressors, indexers",
  router: "routers, hyper-connections",
  "shared-experts": "shared experts",
  "routed-experts": "routed experts",
  vectors: "vectors, tables",
};

const ORDER = Object.keys(LABELS) as WeightClass[];

/** Regions of the weights, by class in reading order and within it by size. */
export function weightRegions({ model, options, pools }: PlanInput): Region[] {
  const plan = planWeights(model);
  const decoded = options.backend === "reference";
  const pool = pools.device.id;
  const regions = new Map<string, Region & { tensors: string[]; fileBytes: number }>();
  const add = (owner: WeightClass, type: string, tensor: TensorInfo, bytes: number, why: string) => {
    const id = `weights/${owner}/${type}`;
    const label = owner === "vectors" ? LABELS.vectors : `${LABELS[owner]} ${type}`;
    const region = regions.get(id) ?? {
      ...({ id, owner: "weights", label, pool, bytes: 0, why, tensors: [], fileBytes: 0 } as const),
      tensors: [],
    };
    region.bytes += bytes;
    region.fileBytes += tensor.bytes;
    region.tensors.push(tensor.name);
    regions.set(id, region);
  };
  const matrixWhy = decoded ? "decoded to float32" : "in kernel layout, one copy";
  plan.matrices.forEach(({ tensor, owner }, index) => {
    const bytes = decoded ? 4 * valueCount(tensor) : placedBytes(plan, index);
    add(owner, tensor.type, tensor, bytes, matrixWhy);
  });
  for (const tensor of [...plan.vectors, ...plan.indexes]) {
    add(
      "vectors",
      "F32",
      tensor,
      4 * valueCount(tensor),
      "norms, biases, sinks, position and routing tables",
    );
  }
  const rank = ({ id }: Region) => ORDER.indexOf(id.split("/")[1] as WeightClass);
  return [...regions.values()].sort((a, b) => rank(a) - rank(b) || b.bytes - a.bytes);
}

/** A matrix and the gap up to the next one, so that the regions add up to the arena. */
function placedBytes({ matrices, arenaBytes }: WeightPlan, index: number): number {
  return (matrices[index + 1]?.offsetBytes ?? arenaBytes) - matrices[index].offsetBytes;
}
