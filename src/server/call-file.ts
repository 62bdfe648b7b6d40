// The memory of sampled calls beside the saved states: after a restart both are needed for a conversation to go on where
// it was.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { deserializeReplay } from "../dsml/replay.ts";
import { CallMemory } from "./call-memory.ts";
import type { ServerLog } from "./server-log.ts";

const FILE_NAME = "tool-calls.bin";

/** A memory and how to save it. */
export interface CallFile {
  memory: CallMemory;
  /** Writes the file, whole or not at all. A folder that cannot be written is one line in the log. */
  save(): void;
}

/** Reads the file in `folder`; without a folder, or a file, the memory is empty. Never throws. */
export function openCallFile(folder: string | undefined, log: ServerLog): CallFile {
  if (folder === undefined) return { memory: new CallMemory(), save: () => {} };
  const path = join(folder, FILE_NAME);
  const memory = new CallMemory(read(path, log));
  const save = () => {
    try {
      mkdirSync(folder, { recursive: true });
      const temporary = `${path}.${process.pid}.tmp`;
      writeFileSync(temporary, memory.store.serialize(), { mode: 0o600 });
      renameSync(temporary, path);
    } catch (error) {
      log.line(`tool calls are not saved: ${(error as Error).message}`);
    }
  };
  return { memory, save };
}

function read(path: string, log: ServerLog) {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT") log.line(`saved tool calls cannot be read: ${message}`);
    return undefined;
  }
  const { replay, damagedCount } = deserializeReplay(bytes);
  if (damagedCount > 0) log.line(`${damagedCount} saved tool calls are damaged and left out`);
  return replay;
}
