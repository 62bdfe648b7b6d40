import { expect, test } from "vitest";
import { GIB } from "../core/units.ts";
import { probeMachine } from "./probe.ts";
import type { SystemReader } from "./system-reader.ts";

/** A machine made of text files. */
function fixture(files: Record<string, string>, used: Record<string, number> = {}): SystemReader {
  return {
    readText: (path) => files[path] ?? null,
    usedBytes: (path) => used[path] ?? null,
    fallbackMemory: () => ({ totalBytes: 7 * GIB, freeBytes: 3 * GIB }),
  };
}

const kb = (gib: number) => `${(gib * GIB) / 1024} kB`;
const spark = {
  "/proc/meminfo": `MemTotal:       ${kb(121.5)}\nMemFree:        ${kb(2)}\nMemAvailable:   ${kb(119.5)}\nSwapTotal:      ${kb(16)}\nSwapFree:       ${kb(16)}\n`,
};

test("page cache counts as available: MemAvailable is used, not MemFree or MemTotal", () => {
  const pool = probeMachine(fixture(spark)).pools[0];
  expect(pool.totalBytes).toBe(121.5 * GIB);
  expect(pool.availableBytes).toBe(119.5 * GIB);
});

test("a cgroup v2 limit of any ancestor caps what is available, its page cache counted as free", () => {
  const machine = probeMachine(
    fixture({
      ...spark,
      "/proc/self/cgroup": "0::/user.slice/job\n",
      "/sys/fs/cgroup/user.slice/job/memory.max": "max\n",
      "/sys/fs/cgroup/user.slice/job/memory.current": "1\n",
      "/sys/fs/cgroup/user.slice/memory.max": `${64 * GIB}\n`,
      "/sys/fs/cgroup/user.slice/memory.current": `${40 * GIB}\n`,
      "/sys/fs/cgroup/user.slice/memory.stat": `anon 1\ninactive_file ${20 * GIB}\nactive_file ${10 * GIB}\n`,
    }),
  );
  expect(machine.pools[0].availableBytes).toBe(54 * GIB);
  expect(machine.pools[0].limits.map((limit) => limit.source)).toEqual(["cgroup v2 /user.slice"]);
});

test("memory.high is a ceiling like memory.max, the lower one wins", () => {
  const machine = probeMachine(
    fixture({
      ...spark,
      "/proc/self/cgroup": "0::/a\n",
      "/sys/fs/cgroup/a/memory.max": `${64 * GIB}`,
      "/sys/fs/cgroup/a/memory.high": `${32 * GIB}`,
      "/sys/fs/cgroup/a/memory.current": "0",
    }),
  );
  expect(machine.pools[0].availableBytes).toBe(32 * GIB);
});

test("cgroup v1 is read where version 2 has no memory controller, and its 'unlimited' number is no limit", () => {
  const files = {
    ...spark,
    "/proc/self/cgroup": "4:cpu,memory:/box\n0::/\n",
    "/sys/fs/cgroup/memory/box/memory.limit_in_bytes": `${8 * GIB}`,
    "/sys/fs/cgroup/memory/box/memory.usage_in_bytes": `${3 * GIB}`,
    "/sys/fs/cgroup/memory/box/memory.stat": `total_inactive_file ${2 * GIB}\n`,
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1",
  };
  const pool = probeMachine(fixture(files)).pools[0];
  expect(pool.availableBytes).toBe(7 * GIB);
  expect(pool.limits).toHaveLength(1);
});

test("40 GiB in /dev/shm give one warning line (case 12)", () => {
  const files = {
    ...spark,
    "/proc/mounts": "tmpfs /dev/shm tmpfs rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\nproc /proc proc rw 0 0\n",
  };
  const machine = probeMachine(fixture(files, { "/dev/shm": 40 * GIB }));
  expect(machine.tmpfsBytes).toBe(40 * GIB);
  expect(machine.warnings).toHaveLength(1);
  expect(machine.warnings[0]).toContain("40.00 GiB");
});

test("WSL is recognised and its memory ceiling named (case 133)", () => {
  const machine = probeMachine(
    fixture({ ...spark, "/proc/version": "Linux version 6.6.1-microsoft-standard-WSL2" }),
  );
  expect(machine.isWsl).toBe(true);
  expect(machine.warnings[0]).toContain(".wslconfig");
});

test("without /proc the runtime's figures are used", () => {
  const pool = probeMachine(fixture({})).pools[0];
  expect([pool.totalBytes, pool.availableBytes]).toEqual([7 * GIB, 3 * GIB]);
});

test("the running machine answers with sensible figures", () => {
  const pool = probeMachine().pools[0];
  expect(pool.availableBytes).toBeGreaterThan(0);
  expect(pool.availableBytes).toBeLessThanOrEqual(pool.totalBytes);
});
