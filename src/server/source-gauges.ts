// The scheduler's statistics as gauges of `/metrics`.
import type { SchedulerStats } from "../scheduler/scheduler-types.ts";
import type { Gauge } from "./answer-source.ts";

/** Memory, slots, cache and queue. */
export function schedulerGauges(stats: SchedulerStats): Gauge[] {
  const { backend, kvBytes, counters, slots } = stats;
  const memory = (region: string, value: number): Gauge => ({
    name: "memory_bytes",
    help: "Memory held, by region",
    labels: `region="${region}"`,
    value,
  });
  const plain = (name: string, help: string, value: number): Gauge => ({ name, help, labels: "", value });
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
