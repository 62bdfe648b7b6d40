// The composition root of the engine: which backend runs a file. Runs inside the worker thread.
import type { Backend } from "../backend/backend.ts";
import { type CpuOptions, createCpuBackend } from "../backend/cpu/cpu-backend.ts";
import { type CudaOptions, createCudaBackend } from "../backend/cuda/cuda-backend.ts";
import { loadNative, type NativeAddon } from "../backend/native.ts";
import { createReferenceBackend } from "../backend/reference/reference-backend.ts";
import { Ds4Error } from "../core/errors.ts";
import type { ProgressListener } from "../core/progress.ts";
import type { GgufFile } from "../gguf/gguf-file.ts";
import { openGguf } from "../gguf/open-gguf.ts";
import { ConstraintFactory } from "../grammar/token-constraint.ts";
import type { LoadOptions } from "../residency/load-weights.ts";
import type { EngineParts } from "../session/engine-loop.ts";
import type { BackendChoice, EngineWorkerOptions } from "../session/engine-protocol.ts";
import { tokenizerFromGguf } from "../tokenizer/gguf-tables.ts";
import { machineWithGpu, probeGpu } from "./gpu.ts";
import { machineForRun, planFits, preflight, type RunDemand } from "./preflight.ts";

/** Opens file, tokenizer and backend. Throws their errors; nothing stays open on failure. */
export function openParts(options: EngineWorkerOptions, onProgress?: ProgressListener): EngineParts {
  const file = openGguf(options.modelPath);
  try {
    const choice = chooseBackend(options.backend, file, options);
    const warnings = [...choice.warnings, ...preflight(file, { ...options, backend: choice.name })];
    const tokenizer = tokenizerFromGguf(file);
    const { threads, kvType, cancel } = options;
    const load = { onProgress, signal: cancel && signalOf(cancel) };
    const backend = createBackend(choice, file, { threads, kvType, ...load });
    const createDecoder = () => tokenizer.createDetokenizer({ hideControl: true });
    const constraints = new ConstraintFactory(tokenizer);
    const openConstraint: EngineParts["openConstraint"] = (constraint) => constraints.open(constraint);
    return { backend: closingFile(backend, file), createDecoder, openConstraint, warnings };
  } catch (error) {
    file.close();
    throw error;
  }
}

/** A signal that another thread sets. */
function signalOf(cancel: SharedArrayBuffer): { readonly aborted: boolean } {
  const flag = new Int32Array(cancel);
  return {
    get aborted() {
      return Atomics.load(flag, 0) !== 0;
    },
  };
}

/** What `openBackend` needs to know. */
export type OpenBackendOptions = Omit<EngineWorkerOptions, "modelPath">;

/**
 * The backend asked for, after the preflight; `auto` falls back to the reference with one warning. Throws `native`,
 * `memory`, ….
 */
export function openBackend(
  file: GgufFile,
  options: OpenBackendOptions,
  load: LoadOptions = {},
): { backend: Backend; warnings: string[] } {
  const { threads, kvType } = options;
  const choice = chooseBackend(options.backend, file, options);
  const warnings = [...choice.warnings, ...preflight(file, { ...options, backend: choice.name })];
  return { backend: createBackend(choice, file, { threads, kvType, ...load }), warnings };
}

/** Which backend will run, before anything of it exists. */
export type BackendDecision = { warnings: string[] } & (
  | { name: "cpu" | "cuda"; addon: NativeAddon }
  | { name: "reference" }
);

/** What `auto` asks the memory plan about. */
type Demand = Omit<RunDemand, "backend" | "force">;

/**
 * Decides what `auto` means for a file: cuda where a GPU holds the model, else cpu, else reference. Throws `native` or
 * `cuda` when the backend that is asked for cannot run here.
 */
export function chooseBackend(choice: BackendChoice, file: GgufFile, demand: Demand = {}): BackendDecision {
  if (choice === "reference") return { name: "reference", warnings: [] };
  const native = loadNative();
  if (native.addon === null) {
    const reason = `the native addon does not load (${native.reason})`;
    if (choice !== "auto") throw new Ds4Error("native", `${reason}; use --backend reference`);
    const warning = `${reason}; the plain TypeScript backend runs instead, which is many times slower`;
    return { name: "reference", warnings: [warning] };
  }
  const { addon } = native;
  if (choice === "cpu") return { name: "cpu", addon, warnings: [] };
  const probe = probeGpu();
  if (choice === "cuda") {
    if (probe.gpu !== null) return { name: "cuda", addon, warnings: [] };
    throw new Ds4Error("cuda", `no CUDA device can be used: ${probe.reason}; or run with --cpu`);
  }
  // Most machines have no GPU, which is no reason to warn.
  if (probe.gpu === null) return { name: "cpu", addon, warnings: [] };
  const machine = machineWithGpu(machineForRun(), probe);
  if (planFits(file, { ...demand, backend: "cuda" }, machine)) return { name: "cuda", addon, warnings: [] };
  const warning = `the model does not fit on ${probe.gpu.device.name}: the CPU runs it; see ds4 plan`;
  return { name: "cpu", addon, warnings: [warning] };
}

function createBackend(choice: BackendDecision, file: GgufFile, options: CpuOptions & CudaOptions): Backend {
  if (choice.name === "cuda") return createCudaBackend(file, choice.addon, options);
  return choice.name === "cpu" ? createCpuBackend(file, choice.addon, options) : createReferenceBackend(file);
}

function closingFile(backend: Backend, file: GgufFile): Backend {
  const close = backend.close.bind(backend);
  backend.close = () => {
    close();
    file.close();
  };
  return backend;
}
