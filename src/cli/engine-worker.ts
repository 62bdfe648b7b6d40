// The program of the engine's worker thread: composes model file, backend and tokenizer, then serves calls.
import { parentPort, workerData } from "node:worker_threads";
import { serveEngine } from "../session/engine-loop.ts";
import type { EngineWorkerOptions } from "../session/engine-protocol.ts";
import { openParts } from "./open-backend.ts";

if (parentPort === null) throw new Error("engine-worker is the program of a worker thread, not of a process");
await serveEngine(parentPort, workerData as EngineWorkerOptions, openParts);
