// The program of the scheduler's worker thread: composes model file, backend, tokenizer and saved KV states, then
// serves requests.
import { parentPort, workerData } from "node:worker_threads";
import { modelFingerprint } from "../gguf/fingerprint.ts";
import { withGguf } from "../gguf/open-gguf.ts";
import { DEFAULT_KV_DISK_BYTES, openKvDisk } from "../scheduler/kv-disk.ts";
import { serveScheduler } from "../scheduler/scheduler-loop.ts";
import type { SchedulerWorkerOptions } from "../scheduler/scheduler-types.ts";
import { openParts } from "./open-backend.ts";

if (parentPort === null)
  throw new Error("scheduler-worker is the program of a worker thread, not of a process");
await serveScheduler(parentPort, workerData as SchedulerWorkerOptions, async (options, onProgress, log) => {
  const parts = openParts(options, onProgress);
  const { kvDiskFolder: folder, kvDiskBytes: limitBytes = DEFAULT_KV_DISK_BYTES } = options;
  if (folder === undefined) return parts;
  const fingerprint = withGguf(options.modelPath, modelFingerprint);
  return { ...parts, disk: await openKvDisk({ folder, fingerprint, limitBytes, log }) };
});
