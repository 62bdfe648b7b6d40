// What a machine can hold: memory pools with what is free and what limits it. A plain value, so that plans can
// be made for this machine, for a fixture, or for a machine described by name. No I/O here.

/**
 * `host`: RAM that only the CPU uses. `unified`: one pool for CPU and GPU (GB10, Apple silicon). `discrete`: a
 * card's own memory.
 */
export type MemoryKind = "host" | "unified" | "discrete";

/** A ceiling below the machine's own memory, e.g. a control group. */
export interface MemoryLimit {
  /** What sets it, for messages: `cgroup v2 /user.slice`, `WSL`, `--budget`. */
  source: string;
  /** Bytes that may still be used under this limit, reclaimable page cache counted as free. */
  availableBytes: number;
  limitBytes: number;
}

/** One pool of memory. */
export interface MemoryPool {
  /** `host`, `cuda:0`, … */
  id: string;
  kind: MemoryKind;
  totalBytes: number;
  /** What can be had without swapping or killing anyone: page cache counts as free, limits are applied. */
  availableBytes: number;
  limits: MemoryLimit[];
}

/** Everything planning needs to know of a machine. */
export interface Machine {
  /** For messages: `this machine`, `NVIDIA DGX Spark (GB10)`. */
  name: string;
  pools: MemoryPool[];
  swapTotalBytes: number;
  swapFreeBytes: number;
  /** Memory held by files in tmpfs mounts (it is RAM that nobody can reclaim). */
  tmpfsBytes: number;
  isWsl: boolean;
  /** Sentences worth showing before a load: much tmpfs, swap in use, WSL's own ceiling. */
  warnings: string[];
}

/** The pool with this id, or undefined. */
export function findPool(machine: Machine, id: string): MemoryPool | undefined {
  return machine.pools.find((pool) => pool.id === id);
}

/** What planning needs to know of a GPU. */
export interface GpuMemory {
  ordinal: number;
  /** True when it shares the host's memory. */
  integrated: boolean;
  totalBytes: number;
  freeBytes: number;
}

/**
 * The same machine with a GPU. Where it shares the host's memory the host's own figures count: the driver does not see
 * that page cache can be given back.
 */
export function withGpu(
  machine: Machine,
  { ordinal, integrated, totalBytes, freeBytes }: GpuMemory,
): Machine {
  const id = `cuda:${ordinal}`;
  const others = machine.pools.filter((pool) => pool.id !== id);
  if (integrated) {
    const pools = others.map((pool) =>
      pool.id === "host" ? { ...pool, id, kind: "unified" as const } : pool,
    );
    return { ...machine, pools };
  }
  const own: MemoryPool = { id, kind: "discrete", totalBytes, availableBytes: freeBytes, limits: [] };
  return { ...machine, pools: [own, ...others] };
}

/** The same machine with one pool's available memory replaced: `--budget`, tests. */
export function withBudget(machine: Machine, poolId: string, budgetBytes: number): Machine {
  return withPool(machine, poolId, (pool) => ({
    ...pool,
    availableBytes: budgetBytes,
    limits: [{ source: "--budget", availableBytes: budgetBytes, limitBytes: budgetBytes }],
  }));
}

/** The same machine with `bytes` more to be had in one pool: memory that will be given back or is counted elsewhere. */
export function withFreed(machine: Machine, poolId: string, bytes: number): Machine {
  return withPool(machine, poolId, (pool) => ({
    ...pool,
    availableBytes: pool.availableBytes + bytes,
    limits: pool.limits.map((limit) => ({ ...limit, availableBytes: limit.availableBytes + bytes })),
  }));
}

function withPool(machine: Machine, poolId: string, change: (pool: MemoryPool) => MemoryPool): Machine {
  return { ...machine, pools: machine.pools.map((pool) => (pool.id === poolId ? change(pool) : pool)) };
}
