// Before a model is loaded: plan it from the header and compare with the machine. Reads no weight byte.
import { availableParallelism } from "node:os";
import { decodedBytes, MAX_DECODED_BYTES } from "../backend/reference/weight-decoding.ts";
import { modelTensors } from "../convert/model-shape.ts";
import { PUBLISHED_ALIASES, publishedModel } from "../convert/published-models.ts";
import { MemoryError } from "../core/errors.ts";
import type { KvType } from "../core/kv-type.ts";
import { type Machine, withFreed } from "../machine/machine.ts";
import { probeMachine } from "../machine/probe.ts";
import type { ModelSpec } from "../model/model-spec.ts";
import type { BoundModel } from "../model/weights.ts";
import { checkFits, type Fit, refusal, tightWarning } from "../plan/fit.ts";
import { type MemoryPlan, type PlanOptions, planMemory } from "../plan/memory-plan.ts";
import { type Alternative, findRemedies, type PlanRequest } from "../plan/remedies.ts";
import { CPU_BATCH_TOKENS, CUDA_BATCH_TOKENS } from "../plan/scratch-size.ts";
import { DEFAULT_CTX_TOKENS } from "../session/engine-loop.ts";

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
}

/** A model and what messages call it. */
export type NamedModel = Pick<PlanRequest, "name" | "model">;

/** A run, its plan on a machine, and whether that fits. */
export interface PlannedRun {
  request: PlanRequest;
  machine: Machine;
  plan: MemoryPlan;
  fit: Fit;
}

/** This machine without its GPU, with what this process holds already counted as free: the plan counts it again. */
export function machineForRun(): Machine {
  return withFreed(probeMachine(), "host", process.memoryUsage.rss());
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

/** Plans a run. Throws what `planMemory` throws. */
export function planRun({ name, model }: NamedModel, demand: RunDemand, machine: Machine): PlannedRun {
  const options = runOptions(model.spec, demand);
  const plan = planMemory(name, model, options, machine);
  return { request: { name, model, options }, machine, plan, fit: checkFits(plan, machine) };
}

/** Whether the run does not fit, so that `preflight` refuses it. */
export function isRefused(run: PlannedRun): boolean {
  return run.fit.verdict === "refused" && !isRefusedByBackend(run);
}

// Above its own limit the reference backend refuses by itself, and knows better what to do.
function isRefusedByBackend({ request: { model, options } }: PlannedRun): boolean {
  return options.backend === "reference" && decodedBytes(model) > MAX_DECODED_BYTES;
}

/**
 * Checks that the run fits. Returns warnings: a tight fit, or with `force` the refusal. Throws `memory` with need, have
 * and remedies. `force`: load although the plan does not fit; `false`: the user could say so, and is told; undefined:
 * there is no flag.
 */
export function preflight(run: PlannedRun, force?: boolean): string[] {
  const { plan, machine, fit } = run;
  if (fit.verdict === "fits" || isRefusedByBackend(run)) return [];
  if (fit.verdict === "tight") return [tightWarning(plan, fit), ...machine.warnings];
  const error = refusalOf(run);
  if (force) return [`${error.message.split("\n")[0]}; loading it anyway`, ...machine.warnings];
  const lines = [
    error.message,
    ...(force === false ? ["  --force loads it anyway; this or other programs may then be killed"] : []),
    ...machine.warnings.map((warning) => `  note: ${warning}`),
  ];
  throw new MemoryError(lines.join("\n"), error.neededBytes, error.availableBytes);
}

/** Need, have and what would fit instead, published files of the same shape among it. */
export function refusalOf({ request, machine, plan, fit }: PlannedRun): MemoryError {
  return refusal(plan, fit, findRemedies(request, machine, alternativesTo(request.model)));
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
