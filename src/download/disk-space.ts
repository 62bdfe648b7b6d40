// Whether a download has room on the disk, asked before its first byte.
import { statfs } from "node:fs/promises";
import { Ds4Error } from "../core/errors.ts";
import { formatBytes } from "../core/units.ts";

/** Left free: for the state beside the file and for everyone else. */
const DISK_MARGIN_BYTES = 64 * 1024 * 1024;

/** Throws `io` when the folder's file system has not `neededBytes` and a little more free for this user. */
export async function checkDiskSpace(
  folder: string,
  fileName: string,
  neededBytes: number,
  freeBytes: (folder: string) => Promise<number> = freeDiskBytes,
): Promise<void> {
  const free = await freeBytes(folder);
  if (neededBytes + DISK_MARGIN_BYTES <= free) return;
  throw new Ds4Error(
    "io",
    `${folder} has ${formatBytes(free)} free, ${fileName} needs ${formatBytes(neededBytes)} and ` +
      `${formatBytes(DISK_MARGIN_BYTES)} to spare; free some space or choose another folder with -o`,
  );
}

async function freeDiskBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
}
