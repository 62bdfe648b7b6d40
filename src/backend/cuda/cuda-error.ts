// Failures of the CUDA driver as typed errors: which call, CUDA's name for it, and what to do.
import { Ds4Error, MemoryError } from "../../core/errors.ts";

/** A call of the driver failed. */
export class CudaError extends Ds4Error {
  /** CUDA's name, e.g. CUDA_ERROR_LAUNCH_FAILED. */
  readonly result: string;
  /** The driver's function. */
  readonly call: string;
  /** True when the context is unusable from now on: only a new process helps. */
  readonly fatal: boolean;

  constructor(call: string, result: string, text: string) {
    super("cuda", `${call} failed: ${result}${text === "" ? "" : ` (${text})`}; ${adviceFor(result)}`);
    this.result = result;
    this.call = call;
    this.fatal = FATAL.has(result);
  }
}

/** The error for a failed call: `memory` when the device is full. `neededBytes` where the call allocates. */
export function cudaError(call: string, result: string, text: string, neededBytes = Number.NaN): Ds4Error {
  if (result !== OUT_OF_MEMORY) return new CudaError(call, result, text);
  const amount = Number.isNaN(neededBytes) ? "" : ` for ${neededBytes} bytes`;
  const message = `the CUDA device has no memory${amount} (${call}: ${result})`;
  return new MemoryError(
    `${message}; use a smaller --ctx or stop other programs on it`,
    neededBytes,
    Number.NaN,
  );
}

const OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY";

/** Errors after which every further call in the context fails. */
const FATAL: ReadonlySet<string> = new Set([
  "CUDA_ERROR_DEVICE_UNAVAILABLE",
  "CUDA_ERROR_ECC_UNCORRECTABLE",
  "CUDA_ERROR_NVLINK_UNCORRECTABLE",
  "CUDA_ERROR_ILLEGAL_ADDRESS",
  "CUDA_ERROR_LAUNCH_TIMEOUT",
  "CUDA_ERROR_ASSERT",
  "CUDA_ERROR_HARDWARE_STACK_ERROR",
  "CUDA_ERROR_ILLEGAL_INSTRUCTION",
  "CUDA_ERROR_MISALIGNED_ADDRESS",
  "CUDA_ERROR_INVALID_ADDRESS_SPACE",
  "CUDA_ERROR_INVALID_PC",
  "CUDA_ERROR_LAUNCH_FAILED",
  "CUDA_ERROR_EXTERNAL_DEVICE",
  "CUDA_ERROR_SYSTEM_NOT_READY",
  "CUDA_ERROR_UNKNOWN",
]);

const ADVICE: Readonly<Record<string, string>> = {
  CUDA_ERROR_NO_DEVICE: "no GPU is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --cpu",
  CUDA_ERROR_NO_BINARY_FOR_GPU: "the kernels were not built for this GPU; run: npm run build:cuda",
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION: "the driver is older than the kernels; update it",
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: "driver and kernel module differ in version; restart the machine",
  CUDA_ERROR_INSUFFICIENT_DRIVER: "update the NVIDIA driver",
  CUDA_ERROR_ECC_UNCORRECTABLE: "the GPU's memory is faulty; check nvidia-smi -q -d ECC",
  CUDA_ERROR_ILLEGAL_ADDRESS: "please report it with the model's name; restart the program",
  CUDA_ERROR_LAUNCH_FAILED: "please report it with the model's name; restart the program",
  CUDA_ERROR_INVALID_VALUE: "please report it",
  CUDA_ERROR_NOT_FOUND: "kernels and program are of different versions; run: npm run build:cuda",
};

function adviceFor(result: string): string {
  return ADVICE[result] ?? (FATAL.has(result) ? "restart the program; check nvidia-smi" : "check nvidia-smi");
}
