// The memory plan: every region that a run allocates, by owner and pool, computed from a file's header before anything
// is allocated. A pure value: printed, compared with a machine, and carried out by residency and backend.
import { Ds4Error } from "../core/errors.ts";
import type { KvType } from "../core/kv-type.ts";
import type { Machine, MemoryPool } from "../machine/machine.ts";
import type { BoundModel } from "../model/weights.ts";
import { kvRegions } from "./kv-regions.ts";
import { overheadRegions } from "./overhead-regions.ts";
import { weightRegions } from "./weight-regions.ts";

/** Who runs the model. */
export type PlannedBackend = "cpu" | "cuda" | "reference";

/** What a region is part of. */
export type RegionOwner = "weights" | "kv" | "scratch" | "staging" | "runtime" | "reserve";

/** One region of memory. */
export interface Region {
  /** Stable name, e.g. `weights/routed-experts/IQ2_XXS`. */
  id: string;
  owner: RegionOwner;
  /** For people. */
  label: string;
  /** Id of the pool it lies in. */
  pool: string;
  bytes: number;
  /** One clause: what it holds and what its size depends on. */
  why: string;
  /** Weights only: names of the tensors it holds, and their bytes in the file. */
  tensors?: readonly string[];
  fileBytes?: number;
}

/** What the plan depends on besides the model and the machine. */
export interface PlanOptions {
  backend: PlannedBackend;
  /** Context of each slot. */
  ctxTokens: number;
  /** Sequences that are held at once. */
  slots: number;
  /** Most tokens of one forward call. */
  batchTokens: number;
  /** Most rows of logits wanted in one call: one per slot, more when a text is scored. */
  headRows: number;
  /** Compute threads. */
  threads: number;
  /** Budget for checkpoints of KV states in memory; 0 by default. */
  checkpointBytes?: number;
  /** A server's: requests that it holds at once, running and waiting. Absent where no server runs. */
  requests?: number;
  /** CUDA only: rows of keys and values, "f16" by default. */
  kvType?: KvType;
}

/** Every region, and what the file holds that is not loaded. */
export interface MemoryPlan {
  /** The file, for messages. */
  name: string;
  options: PlanOptions;
  regions: readonly Region[];
  /** Tensors that no role of the model uses (draft blocks): they stay in the file. */
  notLoaded: readonly string[];
}

/** Where regions go: `device` holds what the kernels touch, `host` everything else; often the same pool. */
export interface PlanPools {
  device: MemoryPool;
  host: MemoryPool;
}

/** What the parts of a plan are made from. */
export interface PlanInput {
  model: BoundModel;
  options: PlanOptions;
  pools: PlanPools;
}

/**
 * Plans a run of `model` on `machine`. Throws `usage` when the machine lacks a pool that the backend needs, and
 * `unsupported-model` for a tensor of impossible size.
 */
export function planMemory(
  name: string,
  model: BoundModel,
  options: PlanOptions,
  machine: Machine,
): MemoryPlan {
  const input = { model, options, pools: planPools(options.backend, machine) };
  const regions = [...weightRegions(input), ...kvRegions(input), ...overheadRegions(input)];
  return {
    name,
    options,
    regions: regions.filter((region) => region.bytes > 0),
    notLoaded: model.unusedTensors,
  };
}

/** The pools that a backend uses on a machine. Throws `usage` when there is none. */
export function planPools(backend: PlannedBackend, machine: Machine): PlanPools {
  const unified = machine.pools.find((pool) => pool.kind === "unified");
  const host = machine.pools.find((pool) => pool.kind === "host") ?? unified;
  const device = backend === "cuda" ? machine.pools.find((pool) => pool.id.startsWith("cuda:")) : host;
  if (host !== undefined && device !== undefined) return { device, host };
  throw new Ds4Error("usage", `${machine.name} has no memory that the ${backend} backend could use`);
}

/** Bytes of the regions that `select` picks; the reserve is not part of any need. */
export function regionBytes(plan: MemoryPlan, select: (region: Region) => boolean = () => true): number {
  return plan.regions.reduce(
    (sum, region) => (region.owner !== "reserve" && select(region) ? sum + region.bytes : sum),
    0,
  );
}
