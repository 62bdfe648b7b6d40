// Everything of a memory plan that is neither weights nor KV: activations, staging, the runtime itself, and the reserve.
import { GIB, KIB, MIB } from "../core/units.ts";
import type { PlanInput, Region } from "./memory-plan.ts";
import { cudaResultBytes, headBytes, scratchBytes } from "./scratch-size.ts";
import { stagingBytes, uploadBytes } from "./staging-size.ts";
import { planWeights } from "./weight-layout.ts";
import { taskBytes, threadBytes, workspaceBytes } from "./workspace-size.ts";

/** Node with worker, addon and a small vocabulary: see docs/decisions/004-memory-plan.md for how it was measured. */
const RUNTIME_BYTES = 128 * MIB;
/** Tokenizer tables per token of the vocabulary, in the main thread and in the worker; measured there too. */
const RUNTIME_BYTES_PER_VOCAB_TOKEN = 768;
/** What a server holds beside that after minutes of load, and for each request; measured there too. */
const SERVER_BYTES = 36 * MIB;
const SERVER_BYTES_PER_REQUEST = 64 * KIB;
/** A CUDA context on the device, and the driver in the process; measured on an H200, see the decision too. */
const CUDA_CONTEXT_BYTES = 500 * MIB;
const CUDA_DRIVER_BYTES = 192 * MIB;
/** The reference backend makes fresh arrays; this many times the CPU backend's may wait for the collector. */
const REFERENCE_GARBAGE_FACTOR = 2;

/** Share of a pool that should stay free, within bounds: for the page cache, other programs and what no plan sees. */
const RESERVE_SHARE = 1 / 32;
const MIN_RESERVE_BYTES = 256 * MIB;
const MAX_RESERVE_BYTES = 4 * GIB;

/** Bytes that should stay free in a pool of `totalBytes`. */
export function reserveBytes(totalBytes: number): number {
  return Math.min(MAX_RESERVE_BYTES, Math.max(MIN_RESERVE_BYTES, Math.round(totalBytes * RESERVE_SHARE)));
}

/** Bytes of the process itself before a model is loaded, and of the tokenizer. */
export function runtimeBytes(vocabSize: number): number {
  return RUNTIME_BYTES + RUNTIME_BYTES_PER_VOCAB_TOKEN * vocabSize;
}

/** The regions, in the order in which they are shown. */
export function overheadRegions({ model, options, pools }: PlanInput): Region[] {
  const { spec } = model;
  const { backend, batchTokens, headRows, slots, threads, requests } = options;
  const { device, host } = pools;
  const factor = backend === "reference" ? REFERENCE_GARBAGE_FACTOR : 1;
  const native = backend === "reference" ? 0 : workspaceBytes(model, options);
  const threadsBytes =
    backend === "cpu" ? threads * threadBytes(model, options) + taskBytes(model, options) : 0;
  const scratch = (id: string, label: string, bytes: number, why: string): Region => {
    return { id: `scratch/${id}`, owner: "scratch", label, pool: device.id, bytes, why };
  };
  const regions: Region[] = [
    scratch(
      "activations",
      "activations",
      factor * scratchBytes(spec, batchTokens),
      `${batchTokens} tokens at a time, whatever the context`,
    ),
    scratch(
      "head",
      "logits",
      factor * headBytes(spec, headRows),
      `${headRows} rows of the output head at once`,
    ),
    scratch("workspace", "kernel workspace", native, "quantized inputs and expert rows of a batch"),
    scratch("threads", "thread scratch", threadsBytes, `scores and tasks of ${threads} compute threads`),
  ];
  if (backend === "cuda") {
    const why = "pinned: candidates, and a row of logits for each slot";
    const bytes = cudaResultBytes(spec, slots);
    regions.push({ id: "scratch/results", owner: "scratch", label: "results", pool: host.id, bytes, why });
  }
  if (backend !== "reference") {
    const weights = planWeights(model);
    const bytes = stagingBytes(weights) + (backend === "cuda" ? uploadBytes(weights) : 0);
    regions.push(stagingRegion(bytes, host.id));
  }
  regions.push({
    ...{ id: "runtime/process", owner: "runtime", label: "process", pool: host.id },
    ...{ bytes: runtimeBytes(spec.vocabSize), why: "Node, addon and tokenizer, as measured" },
  });
  if (requests !== undefined) regions.push(serverRegion(requests, host.id));
  if (backend === "cuda") {
    regions.push({
      ...{ id: "runtime/cuda", owner: "runtime", label: "CUDA context", pool: device.id },
      ...{ bytes: CUDA_CONTEXT_BYTES, why: "440 MiB on an H200; 300 to 600 in public figures" },
    });
    regions.push({
      ...{ id: "runtime/driver", owner: "runtime", label: "CUDA driver", pool: host.id },
      ...{ bytes: CUDA_DRIVER_BYTES, why: "what the driver keeps in the process, as measured on an H200" },
    });
  }
  for (const pool of device.id === host.id ? [device] : [device, host]) {
    const bytes = reserveBytes(pool.totalBytes);
    const why = "should stay free; not part of the need";
    regions.push({ id: `reserve/${pool.id}`, owner: "reserve", label: "reserve", pool: pool.id, bytes, why });
  }
  return regions;
}

function stagingRegion(bytes: number, pool: string): Region {
  const why = "weights pass through it while loading";
  return { id: "staging/load", owner: "staging", label: "load buffer", pool, bytes, why };
}

function serverRegion(requests: number, pool: string): Region {
  const bytes = SERVER_BYTES + SERVER_BYTES_PER_REQUEST * requests;
  const why = `compiled code, heap and sockets of ${requests} requests at once, as measured`;
  return { id: "runtime/server", owner: "runtime", label: "server", pool, bytes, why };
}
