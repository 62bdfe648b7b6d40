// The memories of sampled calls and answers beside the saved states: after a restart all are needed for a conversation
// to go on where it was.
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { deserializeReplay } from "../dsml/replay.ts";
import { AnswerMemory } from "./answer-memory.ts";
import { CallMemory } from "./call-memory.ts";
import type { ServerLog } from "./server-log.ts";

const CALLS_FILE = "tool-calls.bin";
const ANSWERS_FILE = "answers.bin";

/** The memories and how to save them. */
export interface MemoryFiles {
  calls: CallMemory;
  answers: AnswerMemory;
  /**
   * Writes what changed since the last time, each file whole or not at all. A folder that cannot be written is one line
   * in the log.
   */
  save(): void;
}

/** How often changed memories are written while nothing else is to do: what a kill may cost. */
const SAVE_INTERVAL_MS = 60_000;

/** Saves now and then, when `isIdle` says that writing holds nobody up. Returns what ends it. */
export function saveWhenIdle(
  files: MemoryFiles,
  isIdle: () => boolean,
  intervalMs = SAVE_INTERVAL_MS,
): () => void {
  const timer = setInterval(() => isIdle() && files.save(), intervalMs);
  timer.unref();
  return () => clearInterval(timer);
}

/** Reads the files in `folder`; without a folder, or a file, a memory is empty. Never throws. */
export function openMemoryFiles(folder: string | undefined, log: ServerLog): MemoryFiles {
  const answers = new AnswerMemory();
  if (folder === undefined) return { calls: new CallMemory(), answers, save: () => {} };
  const callBytes = read(join(folder, CALLS_FILE), log);
  const restored = callBytes && deserializeReplay(callBytes);
  const calls = new CallMemory(restored?.replay);
  const answerBytes = read(join(folder, ANSWERS_FILE), log);
  const damagedCount = (restored?.damagedCount ?? 0) + (answerBytes ? answers.restore(answerBytes) : 0);
  if (damagedCount > 0) log.line(`${damagedCount} saved calls or answers are damaged and left out`);
  const saved = { calls: 0, answers: 0 };
  let reported = "";
  const save = () => {
    const now = { calls: calls.changes, answers: answers.changes };
    if (now.calls === saved.calls && now.answers === saved.answers) return;
    try {
      mkdirSync(folder, { recursive: true });
      if (now.calls !== saved.calls) write(join(folder, CALLS_FILE), calls.store.serialize());
      if (now.answers !== saved.answers) write(join(folder, ANSWERS_FILE), answers.serialize());
      Object.assign(saved, now);
    } catch (error) {
      const problem = `calls and answers are not saved: ${(error as Error).message}`;
      if (problem !== reported) log.line(problem);
      reported = problem;
    }
  };
  return { calls, answers, save };
}

function write(path: string, bytes: Uint8Array): void {
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    writeFileSync(temporary, bytes, { mode: 0o600 });
    renameSync(temporary, path);
  } catch (error) {
    if (existsSync(temporary)) rmSync(temporary); // cut off by a full disk
    throw error;
  }
}

function read(path: string, log: ServerLog): Uint8Array | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT") log.line(`${path} cannot be read: ${message}`);
    return undefined;
  }
}
