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
import type { Machine } from "../machine/machine.ts";
import { bindModel } from "../model/weights.ts";
import type { MemoryPlan } from "../plan/memory-plan.ts";
import type { LoadOptions } from "../residency/load-weights.ts";
import type { EngineParts } from "../session/engine-loop.ts";
import type { BackendChoice, EngineWorkerOptions } from "../session/engine-protocol.ts";
import { tokenizerFromGguf } from "../tokenizer/gguf-tables.ts";
import { machineWithGpu, probeGpu } from "./gpu.ts";
import { machineForRun, type NamedModel, planRun, preflight, type RunDemand } from "./preflight.ts";

/** Opens file, tokenizer and backend. Throws their errors; nothing stays open on failure. */
export function openParts(options: EngineWorkerOptions, onProgress?: ProgressListener): EngineParts {
  const file = openGguf(options.modelPath);
  try {
    const { choice, warnings } = decideRun(file, options);
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
 * The backend asked for, after the preflight, and the plan that passed it; `auto` falls back to the reference with one
 * warning. Throws `native`, `memory`, ….
 */
export function openBackend(
  file: GgufFile,
  options: OpenBackendOptions,
  load: LoadOptions = {},
): { backend: Backend; plan: MemoryPlan; warnings: string[] } {
  const { threads, kvType } = options;
  const { choice, plan, warnings } = decideRun(file, options);
  return { backend: createBackend(choice, file, { threads, kvType, ...load }), plan, warnings };
}

/**
 * Which backend will run a file, and the plan that passed the preflight, before anything of it exists. Throws as
 * `chooseBackend` and `preflight` do, and what binding the file throws.
 */
export function decideRun(file: GgufFile, options: OpenBackendOptions) {
  const model = { name: file.name, model: bindModel(file) };
  const choice = chooseBackend(options.backend, model, options);
  const run = planRun(model, { ...options, backend: choice.name }, choice.machine);
  return { choice, plan: run.plan, warnings: [...choice.warnings, ...preflight(run, options.force)] };
}

/** Which backend will run, and the machine with the memory it can use. */
export type BackendDecision = { machine: Machine; warnings: string[] } & (
  | { name: "cpu" | "cuda"; addon: NativeAddon }
  | { name: "reference" }
);

/**
 * Decides what `auto` means for a model: cuda where a GPU holds it, else cpu, else reference. `demand` is what `auto`
 * asks the memory plan about; `host` is the machine without its GPU. Throws `native` or `cuda` when the backend that is
 * asked for cannot run here.
 */
export function chooseBackend(
  choice: BackendChoice,
  model: NamedModel,
  demand: Omit<RunDemand, "backend"> = {},
  host: Machine = machineForRun(),
): BackendDecision {
  if (choice === "reference") return { name: "reference", machine: host, warnings: [] };
  const native = loadNative();
  if (native.addon === null) {
    const reason = `the native addon does not load (${native.reason})`;
    if (choice !== "auto") throw new Ds4Error("native", `${reason}; use --backend reference`);
    const warning = `${reason}; the plain TypeScript backend runs instead, which is many times slower`;
    return { name: "reference", machine: host, warnings: [warning] };
  }
  const { addon } = native;
  const cpu = (...warnings: string[]): BackendDecision => ({ name: "cpu", addon, machine: host, warnings });
  if (choice === "cpu") return cpu();
  const probe = probeGpu();
  // Most machines have no GPU, which is no reason to warn.
  if (choice === "auto" && probe.gpu === null) return cpu();
  const machine = machineWithGpu(host, probe);
  const cuda: BackendDecision = { name: "cuda", addon, machine, warnings: [] };
  if (
    choice === "cuda" ||
    planRun(model, { ...demand, backend: "cuda" }, machine).fit.verdict !== "refused"
  ) {
    return cuda;
  }
  return cpu(`the model does not fit on ${probe.gpu?.device.name}: the CPU runs it; see ds4 plan`);
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
