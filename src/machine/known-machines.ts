// Machines that can be planned for without having one: `ds4 plan --device gb10`. Figures are what such a
// machine reports when it is idle, not the sum printed on the box.
import { GIB, MIB } from "../core/units.ts";
import type { Machine, MemoryPool } from "./machine.ts";

/** A named machine: its pools when idle. */
interface KnownMachine {
  name: string;
  pools: MemoryPool[];
}

function pool(id: string, kind: MemoryPool["kind"], totalBytes: number, availableBytes: number): MemoryPool {
  return { id, kind, totalBytes, availableBytes, limits: [] };
}

const KNOWN: Record<string, KnownMachine> = {
  // 128 GB soldered; firmware and carve-outs leave 121.6 GiB, an idle desktop about 119.7 GiB of it.
  gb10: { name: "NVIDIA DGX Spark (GB10)", pools: [pool("cuda:0", "unified", 121.6 * GIB, 119.7 * GIB)] },
  h200: {
    name: "NVIDIA H200",
    pools: [
      pool("cuda:0", "discrete", 143771 * MIB, 143200 * MIB),
      pool("host", "host", 128 * GIB, 120 * GIB),
    ],
  },
  "rtx-pro-6000": {
    name: "NVIDIA RTX PRO 6000 Blackwell",
    pools: [pool("cuda:0", "discrete", 97887 * MIB, 97200 * MIB), pool("host", "host", 128 * GIB, 120 * GIB)],
  },
  "rtx-5090": {
    name: "NVIDIA RTX 5090",
    pools: [pool("cuda:0", "discrete", 32607 * MIB, 31800 * MIB), pool("host", "host", 96 * GIB, 90 * GIB)],
  },
  "rtx-4090": {
    name: "NVIDIA RTX 4090",
    pools: [pool("cuda:0", "discrete", 24564 * MIB, 23900 * MIB), pool("host", "host", 64 * GIB, 60 * GIB)],
  },
  "rtx-3090": {
    name: "NVIDIA RTX 3090",
    pools: [pool("cuda:0", "discrete", 24576 * MIB, 23900 * MIB), pool("host", "host", 64 * GIB, 60 * GIB)],
  },
};

/** Names accepted by `findKnownMachine`, for help texts. */
export const KNOWN_MACHINE_NAMES: readonly string[] = Object.keys(KNOWN);

/** A machine by name, or null. Fresh value on each call. */
export function findKnownMachine(name: string): Machine | null {
  const known = KNOWN[name.toLowerCase()];
  if (known === undefined) return null;
  return {
    name: known.name,
    pools: structuredClone(known.pools),
    swapTotalBytes: 0,
    swapFreeBytes: 0,
    tmpfsBytes: 0,
    isWsl: false,
    warnings: [],
  };
}
