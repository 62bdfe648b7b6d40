// The scheduler's statistics as gauges of `/metrics`.
import type { SchedulerStats } from "../scheduler/scheduler-types.ts";
import type { Gauge } from "./answer-source.ts";

/** Bytes of the memory plan, by region. */
export interface PlannedMemory {
  weights: number;
  kvSlots: number;
  kvCheckpoints: number;
  scratch: number;
  /** Everything in the machine's own memory: what the process should take at most. */
  process: number;
}

/** Makes the gauges of one figure of memory, one per region. */
const byRegion =
  (name: string, help: string) =>
  (region: string, value: number): Gauge => ({ name, help, labels: `region="${region}"`, value });

const plain = (name: string, help: string, value: number): Gauge => ({ name, help, labels: "", value });

/** The plan beside what `schedulerGauges` counts, and the process as the system sees it. */
export function plannedGauges(plan: PlannedMemory, residentBytes: number): Gauge[] {
  const planned = byRegion("memory_planned_bytes", "Memory that the plan allows, by region");
  return [
    planned("weights", plan.weights),
    planned("kv_slots", plan.kvSlots),
    planned("kv_checkpoints", plan.kvCheckpoints),
    planned("scratch", plan.scratch),
    planned("process", plan.process),
    plain("process_resident_bytes", "Memory of the process, as the system counts it", residentBytes),
  ];
}

/** Memory, slots, cache and queue. */
export function schedulerGauges(stats: SchedulerStats): Gauge[] {
  const { backend, kvBytes, counters, slots } = stats;
  const memory = byRegion("memory_bytes", "Memory held, by region");
  return [
    memory("weights", backend.weightBytes),
    memory("kv_slots", kvBytes.slots),
    memory("kv_checkpoints", kvBytes.checkpoints),
    memory("scratch", backend.scratchBytes),
    ...slots.map(
      (slot, index): Gauge => ({
        name: "slot_tokens",
        help: "Tokens in each slot's timeline",
        labels: `slot="${index}",state="${slot.state}"`,
        value: slot.tokens,
      }),
    ),
    plain("slot_context_tokens", "Room for tokens in each slot", slots[0]?.ctxTokens ?? 0),
    ...Object.entries(counters.reuse).map(
      ([from, value]): Gauge => ({
        name: "reuse_requests",
        help: "Requests by where their reused tokens came from",
        labels: `from="${from}"`,
        value,
      }),
    ),
    plain("scheduler_queue_length", "Requests that wait for a slot", stats.queueLength),
    plain("decode_steps", "Batched decode steps", counters.decodeSteps),
    plain("decode_sequences", "Sequences that decoded in them", counters.decodeSequences),
    plain("forward_faults", "Faults of the backend", counters.forwardFaults),
  ];
}
