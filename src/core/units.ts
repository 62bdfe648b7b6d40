// Byte and number formatting for people. Binary units (GiB) are what memory is sold and planned in.

/** 2^10 bytes. */
export const KIB = 1024;
/** 2^20 bytes. */
export const MIB = 1024 ** 2;
/** 2^30 bytes. */
export const GIB = 1024 ** 3;

/** `1536` -> `1.50 KiB`. Always two decimals from KiB on, so that columns line up. */
export function formatBytes(bytes: number): string {
  if (Math.abs(bytes) < KIB) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes / KIB;
  let unit = 0;
  while (Math.abs(value) >= KIB && unit < units.length - 1) {
    value /= KIB;
    unit++;
  }
  return `${value.toFixed(2)} ${units[unit]}`;
}

/** Seconds as people read them: `850 ms`, `12.3 s`, `4 min 05 s`, `2 h 03 min`. */
export function formatSeconds(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const pad = (value: number) => String(value).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} min`;
}

/** Smallest multiple of `alignment` (any positive integer) that is >= `value`. Safe above 2^31. */
export function alignUp(value: number, alignment: number): number {
  return Math.ceil(value / alignment) * alignment;
}
