// The program of the scheduler's worker thread: composes model file, backend and tokenizer, then serves requests.
import { parentPort, workerData } from "node:worker_threads";
import { serveScheduler } from "../scheduler/scheduler-loop.ts";
import type { SchedulerWorkerOptions } from "../scheduler/scheduler-types.ts";
import { openParts } from "./open-backend.ts";

if (parentPort === null)
  throw new Error("scheduler-worker is the program of a worker thread, not of a process");
await serveScheduler(parentPort, workerData as SchedulerWorkerOptions, openParts);
