// Before a model is loaded: plan it from the header and compare with the machine. Reads no weight byte.
import { availableParallelism } from "node:os";
import { decodedBytes, MAX_DECODED_BYTES } from "../backend/reference/weight-decoding.ts";
import { modelTensors } from "../convert/model-shape.ts";
import { PUBLISHED_ALIASES, publishedModel } from "../convert/published-models.ts";
import { MemoryError } from "../core/errors.ts";
import type { KvType } from "../core/kv-type.ts";
import { GIB, MIB } from "../core/units.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { type Machine, withFreed } from "../machine/machine.ts";
import { probeMachine } from "../machine/probe.ts";
import type { ModelSpec } from "../model/model-spec.ts";
import { type BoundModel, bindModel } from "../model/weights.ts";
import { checkFits, refusal, tightWarning } from "../plan/fit.ts";
import {
  type MemoryPlan,
  type PlanOptions,
  planMemory,
  planPools,
  type Region,
  regionBytes,
} from "../plan/memory-plan.ts";
import { type Alternative, findRemedies, type PlanRequest } from "../plan/remedies.ts";
import { CPU_BATCH_TOKENS, CUDA_BATCH_TOKENS } from "../plan/scratch-size.ts";
import type { PlannedMemory } from "../server/source-gauges.ts";
import { DEFAULT_CTX_TOKENS } from "../session/engine-loop.ts";
import { machineWithGpu } from "./gpu.ts";

/** What a run will ask for. */
export interface RunDemand {
  backend: "cpu" | "cuda" | "reference";
  threads?: number;
  /** Default: what a session takes. */
  ctxTokens?: number;
  /** Rows of logits wanted at once; one per slot by default. */
  headRows?: number;
  /** KV states, and bytes for checkpoints of them; 1 and 0 by default. */
  slots?: number;
  checkpointBytes?: number;
  /** Requests that a server holds at once; absent without one. */
  requests?: number;
  /** Rows of keys and values on CUDA. */
  kvType?: KvType;
  /** Load although the plan does not fit. `false`: the user could say so, and is told; undefined: there is no flag. */
  force?: boolean;
}

/**
 * This machine, with what this process holds already counted as free: the plan counts it again. With its GPU where the
 * backend needs one: throws `cuda` when there is none.
 */
export function machineForRun(backend: RunDemand["backend"] = "cpu"): Machine {
  const machine = withFreed(probeMachine(), "host", process.memoryUsage.rss());
  return backend === "cuda" ? machineWithGpu(machine) : machine;
}

/** The plan's options for a run. */
export function runOptions(spec: ModelSpec, demand: RunDemand): PlanOptions {
  const { backend, ctxTokens = DEFAULT_CTX_TOKENS, slots = 1, checkpointBytes = 0 } = demand;
  return {
    backend,
    ctxTokens: Math.min(ctxTokens, spec.contextTokens),
    slots,
    batchTokens: backend === "cuda" ? CUDA_BATCH_TOKENS : CPU_BATCH_TOKENS,
    headRows: demand.headRows ?? slots,
    threads: demand.threads ?? availableParallelism(),
    checkpointBytes,
    requests: demand.requests,
    kvType: demand.kvType,
  };
}

/**
 * Checks that the run fits. Returns warnings: a tight fit, or with `force` the refusal. Throws `memory` with need, have
 * and remedies, and what binding the file throws.
 */
export function preflight(
  file: GgufFile,
  demand: RunDemand,
  machine: Machine = machineForRun(demand.backend),
): string[] {
  const model = bindModel(file);
  // Above its own limit the reference backend refuses by itself, and knows better what to do.
  if (demand.backend === "reference" && decodedBytes(model) > MAX_DECODED_BYTES) return [];
  const request: PlanRequest = { name: file.name, model, options: runOptions(model.spec, demand) };
  const plan = planMemory(file.name, model, request.options, machine);
  const fit = checkFits(plan, machine);
  if (fit.verdict === "fits") return [];
  if (fit.verdict === "tight") return [tightWarning(plan, fit), ...machine.warnings];
  const error = refusal(plan, fit, findRemedies(request, machine, alternativesTo(model)));
  if (demand.force) return [`${error.message.split("\n")[0]}; loading it anyway`, ...machine.warnings];
  const lines = [
    error.message,
    ...(demand.force === false
      ? ["  --force loads it anyway; this or other programs may then be killed"]
      : []),
    ...machine.warnings.map((warning) => `  note: ${warning}`),
  ];
  throw new MemoryError(lines.join("\n"), error.neededBytes, error.availableBytes);
}

function planRun(file: GgufFile, demand: RunDemand, machine: Machine): MemoryPlan {
  const model = bindModel(file);
  return planMemory(file.name, model, runOptions(model.spec, demand), machine);
}

/** Whether the run fits on `machine`. Throws what binding the file throws. */
export function planFits(file: GgufFile, demand: RunDemand, machine: Machine): boolean {
  return checkFits(planRun(file, demand, machine), machine).verdict !== "refused";
}

/** Most memory for checkpoints that nobody asked for: about a hundred of a long conversation with V4-Flash. */
const MOST_DEFAULT_CHECKPOINT_BYTES = 2 * GIB;

/** Memory for checkpoints when none is asked for: a quarter of what the run leaves free beside the reserve. */
export function defaultCheckpointBytes(
  file: GgufFile,
  demand: RunDemand,
  machine: Machine = machineForRun(demand.backend),
): number {
  const plan = planRun(file, { ...demand, checkpointBytes: 0 }, machine);
  const { host } = planPools(demand.backend, machine);
  const fit = checkFits(plan, machine).pools.find(({ pool }) => pool === host.id);
  const spareBytes = fit === undefined ? 0 : fit.marginBytes - fit.reserveBytes;
  return Math.min(MOST_DEFAULT_CHECKPOINT_BYTES, Math.max(0, Math.floor(spareBytes / 4 / MIB) * MIB));
}

/** Planned bytes of a run by what the server reports of itself, to be set beside what it holds. */
export function plannedMemory(
  file: GgufFile,
  demand: RunDemand,
  machine: Machine = machineForRun(demand.backend),
): PlannedMemory {
  const plan = planRun(file, demand, machine);
  const { host } = planPools(demand.backend, machine);
  const of = (select: (region: Region) => boolean) => regionBytes(plan, select);
  const isCheckpoint = ({ id }: Region) => id === "kv/checkpoints";
  return {
    weights: of(({ owner }) => owner === "weights"),
    kvSlots: of((region) => region.owner === "kv" && !isCheckpoint(region)),
    kvCheckpoints: of(isCheckpoint),
    scratch: of(({ owner }) => owner === "scratch"),
    process: of(({ pool }) => pool === host.id),
  };
}

/** Published files of the same shape with fewer bytes, largest first. */
export function alternativesTo(model: BoundModel): Alternative[] {
  const shape = JSON.stringify(modelTensors(model.spec));
  const bytes = expertBytes(model);
  return PUBLISHED_ALIASES.map((alias) => ({ alias, model: publishedModel(alias) })).filter(
    (other) => expertBytes(other.model) < bytes && JSON.stringify(modelTensors(other.model.spec)) === shape,
  );
}

/** The files of one shape differ in their experts. */
function expertBytes({ layers }: BoundModel): number {
  return layers.reduce(
    (sum, { gateExps, upExps, downExps }) => sum + gateExps.bytes + upExps.bytes + downExps.bytes,
    0,
  );
}
