// The few files of the operating system that probing reads, behind one interface so that tests can feed
// fixtures (a Spark, a container, WSL) on any machine.
import { readFileSync, statfsSync } from "node:fs";
import { freemem, totalmem } from "node:os";

/** Answers null for what does not exist or may not be read: absence is normal here. */
export interface SystemReader {
  /** Text of a small system file. */
  readText(path: string): string | null;
  /** Bytes in use on the file system mounted at `path`. */
  usedBytes(path: string): number | null;
  /** The runtime's own idea, for systems without /proc. */
  fallbackMemory(): { totalBytes: number; freeBytes: number };
}

/** Longest system file that is read; /proc files of interest are a few kB, mount tables some hundred. */
const MAX_TEXT_BYTES = 4 * 1024 * 1024;

/** Reads the running system. */
export const systemReader: SystemReader = {
  readText(path) {
    try {
      const text = readFileSync(path, "utf8");
      return text.length <= MAX_TEXT_BYTES ? text : null;
    } catch {
      return null;
    }
  },
  usedBytes(path) {
    try {
      const stats = statfsSync(path);
      return (stats.blocks - stats.bfree) * stats.bsize;
    } catch {
      return null;
    }
  },
  fallbackMemory() {
    return { totalBytes: totalmem(), freeBytes: freemem() };
  },
};
