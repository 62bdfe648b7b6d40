// How much a server holds at once: slots and checkpoints, from one plan per choice, before any weight is read.
import { GIB, MIB } from "../core/units.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import type { Machine } from "../machine/machine.ts";
import { bindModel } from "../model/weights.ts";
import { planPools, type Region, regionBytes } from "../plan/memory-plan.ts";
import type { PlannedMemory } from "../server/source-gauges.ts";
import type { BackendChoice } from "../session/engine-protocol.ts";
import { chooseBackend } from "./open-backend.ts";
import { isRefused, machineForRun, type PlannedRun, planRun, preflight } from "./preflight.ts";
import { DEFAULT_SLOTS, type ServeFlags } from "./serve-flags.ts";
import { note, type Terminal } from "./terminal.ts";

interface RoomSize {
  slots: number;
  checkpointBytes: number;
}

/** What the server will hold, and its plan by what the server reports of itself. */
export interface Room extends RoomSize {
  planned: PlannedMemory;
}

/** The flags that decide. */
export type RoomFlags = Pick<
  ServeFlags,
  "ctx" | "threads" | "kvType" | "slots" | "checkpointMb" | "maxQueue" | "force"
>;

/** Most memory for checkpoints that nobody asked for: about a hundred of a long conversation with V4-Flash. */
const MOST_DEFAULT_CHECKPOINT_BYTES = 2 * GIB;

/**
 * What was asked for, or, where nothing was, the most that fits on `host` and its GPU. Throws `memory` when not even one
 * slot does, and what choosing the backend and binding the file throw.
 */
export function chooseRoom(
  file: GgufFile,
  flags: RoomFlags,
  choice: BackendChoice,
  terminal: Terminal,
  host: Machine = machineForRun(),
): Room {
  const { ctx: ctxTokens, threads, kvType, maxQueue, force = false } = flags;
  const slots = flags.slots ?? DEFAULT_SLOTS;
  const model = { name: file.name, model: bindModel(file) };
  const least: RoomSize = { slots: flags.slots ?? 1, checkpointBytes: 0 };
  const demand = { threads, kvType, ctxTokens };
  const { name: backend, machine } = chooseBackend(choice, model, { ...demand, ...least }, host);
  const plan = (size: RoomSize) =>
    planRun(model, { ...demand, backend, requests: slots + maxQueue, ...size }, machine);
  const checkpointBytes =
    flags.checkpointMb === undefined
      ? defaultCheckpointBytes(plan({ slots, checkpointBytes: 0 }))
      : flags.checkpointMb * MIB;
  const asked = plan({ slots, checkpointBytes });
  const isShort = flags.slots === undefined && isRefused(asked);
  const run = isShort ? plan(least) : asked;
  preflight(run, force);
  if (isShort) note(terminal, "memory is short: one slot and no checkpoints; see ds4 plan");
  const { options } = run.plan;
  return { slots: options.slots, checkpointBytes: options.checkpointBytes ?? 0, planned: plannedMemory(run) };
}

/** Memory for checkpoints when none is asked for: a quarter of what a run without any leaves free beside the reserve. */
function defaultCheckpointBytes({ plan, fit, machine }: PlannedRun): number {
  const { host } = planPools(plan.options.backend, machine);
  const hostFit = fit.pools.find(({ pool }) => pool === host.id);
  const spareBytes = hostFit === undefined ? 0 : hostFit.marginBytes - hostFit.reserveBytes;
  return Math.min(MOST_DEFAULT_CHECKPOINT_BYTES, Math.max(0, Math.floor(spareBytes / 4 / MIB) * MIB));
}

function plannedMemory({ plan, machine }: PlannedRun): PlannedMemory {
  const { host } = planPools(plan.options.backend, machine);
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
